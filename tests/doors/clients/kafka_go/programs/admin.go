package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/IBM/sarama"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
)

type administrator interface {
	create(topic string, partitions int, configs options) error
	partitions(topic string) (int, error)
	configs(topic string) (options, error)
	setConfig(topic string, name string, value string) error
	grow(topic string, partitions int) error
	// deleteRecords returns the first offset of partition 0 afterwards.
	deleteRecords(topic string, offset int64) (int64, error)
	delete(topic string) error
	// group describes one that is listed, with its offsets in a topic.
	group(name string, topic string) (groupView, error)
	deleteGroup(name string) error
}

type groupView struct {
	Listed  bool            `json:"listed"`
	State   string          `json:"state"`
	Members int             `json:"members"`
	Offsets map[int32]int64 `json:"offsets"`
}

// administrate prints the result as JSON, or the code of the error.
func administrate(own administrator, command string, words []string) {
	var result any
	var err error
	switch command {
	case "create":
		err = own.create(words[0], number(words[1]), optionsOf(words[2:]))
	case "partitions":
		result, err = own.partitions(words[0])
	case "configs":
		result, err = own.configs(words[0])
	case "set-config":
		err = own.setConfig(words[0], words[1], words[2])
	case "grow":
		err = own.grow(words[0], number(words[1]))
	case "delete-records":
		result, err = own.deleteRecords(words[0], int64(number(words[1])))
	case "delete":
		err = own.delete(words[0])
	case "group":
		result, err = own.group(words[0], words[1])
	case "delete-group":
		err = own.deleteGroup(words[0])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		result = map[string]int{"code": codeOf(err)}
	}
	line, err := json.Marshal(result)
	check(err)
	fmt.Println(string(line))
}

// codeOf ends the program at an error that is none of the broker.
func codeOf(err error) int {
	var ofFranz *kerr.Error
	var ofSarama sarama.KError
	var ofSegment kafka.Error
	switch {
	case errors.As(err, &ofFranz):
		return int(ofFranz.Code)
	case errors.As(err, &ofSarama):
		return int(ofSarama)
	case errors.As(err, &ofSegment):
		return int(ofSegment)
	}
	check(err)
	return 0
}
