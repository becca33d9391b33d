package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// publish sends the lines of a file, as publish_file.py does: the sequence id of a line is its number, from 1. After a
// restart it goes on behind the last one that is stored; again: it begins at the first line. Each line of its standard
// input is a number: so many lines of the file are complete. It prints the number of each line that has its receipt.
func publish(client pulsar.Client, topic string, path string, again bool) {
	producer, err := client.CreateProducer(pulsar.ProducerOptions{
		Topic: topic, Name: "importer", SendTimeout: -1,
		BatchingMaxMessages: 30, BatchingMaxPublishDelay: time.Millisecond,
	})
	check(err)
	sent := max(0, producer.LastSequenceID())
	if again {
		sent = 0
	}
	fmt.Println("begins behind", sent)
	given := bufio.NewScanner(os.Stdin)
	for given.Scan() {
		complete, err := strconv.ParseInt(given.Text(), 10, 64)
		check(err)
		whole, err := os.ReadFile(path)
		check(err)
		lines := bytes.Split(whole, []byte("\n"))
		for ; sent < complete; sent++ {
			number := sent + 1
			message := &pulsar.ProducerMessage{Payload: lines[sent], SequenceID: &number}
			producer.SendAsync(context.Background(), message, answered(number))
		}
	}
	check(producer.FlushWithCtx(context.Background()))
	producer.Close()
	fmt.Println("done")
}

func answered(number int64) func(pulsar.MessageID, *pulsar.ProducerMessage, error) {
	return func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
		if err != nil {
			fmt.Println(number, "failed:", err)
			return
		}
		fmt.Println(number)
	}
}
