// Programs with Pulsar's Go client: modern URL TOPIC, and publish URL TOPIC FILE [again].
package main

import (
	"fmt"
	"os"

	"github.com/apache/pulsar-client-go/pulsar"
)

func main() {
	client, err := pulsar.NewClient(pulsar.ClientOptions{URL: os.Args[2]})
	check(err)
	defer client.Close()
	switch os.Args[1] {
	case "modern":
		modern(client, os.Args[3])
	case "publish":
		publish(client, os.Args[3], os.Args[4], len(os.Args) > 5)
	}
}

func check(err error) {
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}
