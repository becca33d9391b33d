// The program with Pulsar's Go client; the lines are those of the other programs (clients/__init__.py).
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/log"
)

func main() {
	topic := os.Args[2]
	client, err := pulsar.NewClient(pulsar.ClientOptions{
		URL: os.Args[1], OperationTimeout: time.Minute, Logger: log.DefaultNopLogger(),
	})
	must(err)
	var producer pulsar.Producer
	var consumer pulsar.Consumer
	received := map[string]pulsar.MessageID{}
	var count, sent int64
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		words := strings.Fields(lines.Text())
		switch words[0] {
		case "open":
			timeout := time.Duration(number(words[3])) * time.Millisecond
			if timeout == 0 {
				timeout = -1 // none
			}
			count = number(words[2])
			producer, err = client.CreateProducer(pulsar.ProducerOptions{
				Topic: topic, Name: words[1], SendTimeout: timeout, DisableBatching: count == 1, EnableChunking: count == 1,
				BatchingMaxMessages: uint(count), BatchingMaxPublishDelay: time.Minute,
			})
			if err != nil {
				fmt.Println("error", oneWord(err))
			} else {
				fmt.Println("opened", producer.LastSequenceID())
			}
		case "send":
			padding := strings.Repeat(" ", max(0, int(number(words[4]))-len(words[3])))
			tag, message := words[1], pulsar.ProducerMessage{Payload: []byte(words[3] + padding)}
			if words[2] != "-" {
				id := number(words[2])
				message.SequenceID = &id
			}
			producer.SendAsync(context.Background(), &message,
				func(place pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
					if err != nil {
						fmt.Println("failed", tag, oneWord(err))
					} else {
						fmt.Println("sent", tag, fmt.Sprintf("%d:%d", place.LedgerID(), place.EntryID()))
					}
				})
			if sent++; count > 1 && sent%count == 0 {
				go producer.FlushWithCtx(context.Background()) // a full batch waits for the next message
			}
		case "read":
			reader, err := client.CreateReader(pulsar.ReaderOptions{Topic: topic, StartMessageID: pulsar.EarliestMessageID()})
			must(err)
			found := "read"
			for reader.HasNext() {
				message, err := reader.Next(context.Background())
				must(err)
				found += " " + strings.TrimRight(string(message.Payload()), " ")
			}
			reader.Close()
			fmt.Println(found)
		case "consume":
			queue := int(number(words[1]))
			consumer, err = client.Subscribe(pulsar.ConsumerOptions{
				Topic: topic, SubscriptionName: "billing", Type: pulsar.Shared,
				SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
				ReceiverQueueSize: queue, EnableZeroQueueConsumer: queue == 0,
				AckWithResponse: true, AckGroupingOptions: &pulsar.AckGroupingOptions{MaxSize: 1},
			})
			must(err)
			fmt.Println("consuming")
		case "receive":
			fmt.Println(receive(consumer, time.Duration(number(words[1]))*time.Millisecond, words[2:], received))
		case "acknowledge":
			for _, value := range words[1:] {
				must(consumer.AckID(received[value]))
			}
			fmt.Println("acknowledged")
		case "close":
			consumer.Close()
			fmt.Println("closed")
		default:
			panic("unknown line: " + lines.Text())
		}
	}
}

func receive(consumer pulsar.Consumer, limit time.Duration, values []string, received map[string]pulsar.MessageID) string {
	missing := map[string]bool{}
	for _, value := range values {
		missing[value] = true
	}
	found := "received"
	for len(missing) > 0 {
		waiting, cancel := context.Background(), context.CancelFunc(func() {})
		if limit > 0 {
			waiting, cancel = context.WithTimeout(waiting, limit)
		}
		message, err := consumer.Receive(waiting)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			break
		}
		must(err)
		value := string(message.Payload())
		received[value] = message.ID()
		delete(missing, value)
		found += " " + value
	}
	return found
}

func oneWord(err error) string {
	return strings.Join(strings.Fields(err.Error()), "_")
}

func number(word string) int64 {
	found, err := strconv.ParseInt(word, 10, 64)
	must(err)
	return found
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
