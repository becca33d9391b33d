package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"sync"
)

// publisher sends records to one topic.
type publisher interface {
	// send calls answered once, with the offset or the error.
	send(record record, answered func(int64, error))
	// close returns when all are answered.
	close()
}

// publish sends the records of a file. Each line of its standard input is a number: so many records of the file are to be
// sent. A second topic gets as many as the first one. It prints the number of each record, from 1, with the offset that
// it has got, or with the error; "done" behind each topic.
func publish(own library, arguments []string) {
	whole, err := os.ReadFile(arguments[0])
	check(err)
	lines := strings.Split(strings.TrimSpace(string(whole)), "\n")
	input, complete := bufio.NewScanner(os.Stdin), 0
	for at := 1; at < len(arguments); at += 2 {
		to, sent := own.publisher(optionsIn(arguments[at]), arguments[at+1]), 0
		sendUpTo := func(end int) {
			for ; sent < end; sent++ {
				to.send(recordOf(lines[sent]), printed(sent+1))
			}
		}
		sendUpTo(complete)
		for input.Scan() {
			complete = max(complete, number(input.Text()))
			sendUpTo(complete)
		}
		to.close()
		fmt.Println("done")
	}
}

var printing sync.Mutex

func printed(number int) func(int64, error) {
	return func(offset int64, err error) {
		printing.Lock()
		defer printing.Unlock()
		if err != nil {
			fmt.Println(number, "failed:", err)
			return
		}
		fmt.Println(number, offset)
	}
}
