// Programs with clients of Kafka, in the form of the Java programs in ../../kafka_java: LIBRARY COMMAND ARGUMENTS.
//
//	publish RECORDS OPTIONS TOPIC [OPTIONS TOPIC]...
//	read OPTIONS COUNT TOPIC...
//	offsets OPTIONS TOPIC MILLISECONDS...
//	member SERVERS GROUP TOPIC [name=value]...
//	admin OPTIONS COMMAND ARGUMENTS...
//
// OPTIONS is a file of lines name=value. The names are those of Java's client where it has such an option.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// deadline of one question.
const deadline = 60 * time.Second

type options map[string]string

// library is one client of Kafka.
type library interface {
	publisher(options options, topic string) publisher
	// read calls found with the first records of partition 0.
	read(options options, topic string, count int, found func(record))
	places(options options, topic string, times []int64) places
	// consume is in the group until leave is closed.
	consume(options options, group string, topic string, leave <-chan struct{})
	administrator(options options) administrator
}

// places in partition 0: at: of the first record that is not older than each of the times, -1: there is none.
type places struct {
	partitions int
	first, end int64
	at         []int64
}

var libraries = map[string]library{"franz-go": franz{}, "sarama": ibm{}, "kafka-go": segment{}}

func main() {
	own, arguments := libraries[os.Args[1]], os.Args[3:]
	switch os.Args[2] {
	case "publish":
		publish(own, arguments)
	case "read":
		read(own, optionsIn(arguments[0]), number(arguments[1]), arguments[2:])
	case "offsets":
		offsets(own, optionsIn(arguments[0]), arguments[1], arguments[2:])
	case "member":
		member(own, arguments[0], arguments[1], arguments[2], arguments[3:])
	case "admin":
		administrate(own.administrator(optionsIn(arguments[0])), arguments[1], arguments[2:])
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "failed: %v\n", err)
		os.Exit(1)
	}
}

func number(word string) int {
	found, err := strconv.Atoi(word)
	check(err)
	return found
}

func optionsIn(path string) options {
	whole, err := os.ReadFile(path)
	check(err)
	return optionsOf(strings.Split(strings.TrimSpace(string(whole)), "\n"))
}

func optionsOf(words []string) options {
	found := options{}
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		found[name] = value
	}
	return found
}

func (o options) servers() string { return o["bootstrap.servers"] }

func (o options) or(name string, otherwise string) string {
	if value, ok := o[name]; ok {
		return value
	}
	return otherwise
}

func (o options) duration(name string, otherwise int) time.Duration {
	return time.Duration(number(o.or(name, strconv.Itoa(otherwise)))) * time.Millisecond
}

// tls is nil without a certificate authority.
func (o options) tls() *tls.Config {
	path, ok := o["ssl.truststore.location"]
	if !ok {
		return nil
	}
	authority, err := os.ReadFile(path)
	check(err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	return &tls.Config{RootCAs: pool}
}

// login returns the name and password of SASL PLAIN; the password is empty without it.
func (o options) login() (string, string) { return o["sasl.username"], o["sasl.password"] }

// read prints the offset of each record and the record; "done" behind each topic.
func read(own library, options options, count int, topics []string) {
	for _, topic := range topics {
		own.read(options, topic, count, func(found record) { fmt.Println(found.offset, found) })
		fmt.Println("done")
	}
}

func offsets(own library, options options, topic string, words []string) {
	times := []int64{}
	for _, word := range words {
		times = append(times, int64(number(word)))
	}
	found := own.places(options, topic, times)
	fmt.Println("partitions", found.partitions)
	fmt.Println("first", found.first)
	fmt.Println("end", found.end)
	for index, at := range found.at {
		fmt.Println("at", times[index], at)
	}
}
