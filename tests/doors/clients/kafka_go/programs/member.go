package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"sync"
	"time"
)

// batch is how many records a member handles before it commits.
const batch = 20

// member is a consumer in a group that prints what ../../groups/group_member.py prints. It commits what it has printed,
// and leaves the group at a line of its standard input.
func member(own library, servers string, group string, topic string, words []string) {
	given := optionsOf(words)
	given["bootstrap.servers"] = servers
	leave := make(chan struct{})
	go func() {
		bufio.NewScanner(os.Stdin).Scan()
		close(leave)
	}()
	own.consume(given, group, topic, leave)
	say("left")
}

var saying sync.Mutex

func say(words ...any) {
	saying.Lock()
	defer saying.Unlock()
	line, err := json.Marshal(append([]any{time.Now().UnixNano()}, words...))
	check(err)
	fmt.Println(string(line))
}

func got(partition int32, offset int64, value []byte) {
	say("got", partition, offset, string(value))
}

// holding is what a member has now.
type holding struct {
	lock       sync.Mutex
	partitions map[int32]bool
}

func newHolding() *holding { return &holding{partitions: map[int32]bool{}} }

// assigned says all that the member has now, with these.
func (h *holding) assigned(partitions []int32) {
	h.lock.Lock()
	defer h.lock.Unlock()
	for _, each := range partitions {
		h.partitions[each] = true
	}
	all := []int32{}
	for each := range h.partitions {
		all = append(all, each)
	}
	say("assigned", ascending(all))
}

func (h *holding) revoked(partitions []int32) {
	h.lock.Lock()
	defer h.lock.Unlock()
	for _, each := range partitions {
		delete(h.partitions, each)
	}
	say("revoked", ascending(append([]int32{}, partitions...)))
}

func ascending(partitions []int32) []int32 {
	sort.Slice(partitions, func(one, two int) bool { return partitions[one] < partitions[two] })
	return partitions
}
