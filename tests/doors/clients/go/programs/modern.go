package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// modern prints its last sequence ids, a refused id, the places of batches, and what a Reader from each id sees.
func modern(client pulsar.Client, topic string) {
	ids, order := map[int64]pulsar.MessageID{}, []int64{}
	producer := opened(client, topic, "modern")
	fmt.Println("last", producer.LastSequenceID())
	for _, batch := range [][]int64{{2, 3, 5, 7}, {11, 13}, {17}} {
		sent := together(producer, batch, strconv.FormatInt)
		for at, number := range batch {
			fmt.Println("stored", number, "at", sent[at].BatchIdx())
			ids[number] = sent[at]
			order = append(order, number)
		}
	}
	again := together(producer, []int64{17}, strconv.FormatInt)[0]
	first := ids[17]
	fmt.Println("the first copy's id", again.LedgerID() == first.LedgerID() && again.EntryID() == first.EntryID())
	refused(producer, 4, "4")
	refused(producer, 17, "another value")
	id := together(producer, []int64{19}, strconv.FormatInt)[0]
	ids[19] = id
	order = append(order, 19)
	fmt.Println("stored 19 at", id.BatchIdx())
	fmt.Println("last", producer.LastSequenceID())
	producer.Close()
	producer = opened(client, topic, "modern")
	fmt.Println("last", producer.LastSequenceID())
	producer.Close()
	for _, number := range order {
		fmt.Println("behind", number, read(client, topic, ids[number], false))
		fmt.Println("from", number, read(client, topic, ids[number], true))
	}
	fmt.Println("all", read(client, topic, pulsar.EarliestMessageID(), false))
	fmt.Println("none", read(client, topic, pulsar.LatestMessageID(), false))
}

func opened(client pulsar.Client, topic string, name string) pulsar.Producer {
	producer, err := client.CreateProducer(pulsar.ProducerOptions{
		Topic: topic, Name: name, SendTimeout: -1, BatchingMaxPublishDelay: time.Minute,
	})
	check(err)
	return producer
}

// together sends these ids in one batch, and returns the ids of the messages.
func together(producer pulsar.Producer, numbers []int64, value func(int64, int) string) []pulsar.MessageID {
	ids := make([]pulsar.MessageID, len(numbers))
	var waiting sync.WaitGroup
	for at, number := range numbers {
		waiting.Add(1)
		message := &pulsar.ProducerMessage{Payload: []byte(value(number, 10)), SequenceID: &number}
		producer.SendAsync(context.Background(), message, func(id pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
			check(err)
			ids[at] = id
			waiting.Done()
		})
	}
	check(producer.FlushWithCtx(context.Background()))
	waiting.Wait()
	return ids
}

func refused(producer pulsar.Producer, number int64, value string) {
	done := make(chan error, 1)
	message := &pulsar.ProducerMessage{Payload: []byte(value), SequenceID: &number}
	producer.SendAsync(context.Background(), message, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
		done <- err
	})
	_ = producer.FlushWithCtx(context.Background()) // it fails with the message
	if err := <-done; err == nil {
		fmt.Println(number, "is not refused")
	} else {
		fmt.Println(number, "is refused")
	}
}

// read returns the values behind this id, or from it on.
func read(client pulsar.Client, topic string, start pulsar.MessageID, inclusive bool) string {
	reader, err := client.CreateReader(pulsar.ReaderOptions{
		Topic: topic, StartMessageID: start, StartMessageIDInclusive: inclusive,
	})
	check(err)
	defer reader.Close()
	found := ""
	for reader.HasNext() {
		message, err := reader.Next(context.Background())
		check(err)
		found += " " + string(message.Payload())
	}
	return found
}
