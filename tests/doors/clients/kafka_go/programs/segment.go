package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
)

// segment is segmentio/kafka-go. It has no idempotence.
type segment struct{}

func (segment) mechanism(options options) sasl.Mechanism {
	if user, password := options.login(); password != "" {
		return plain.Mechanism{Username: user, Password: password}
	}
	return nil
}

func (own segment) transport(options options) *kafka.Transport {
	return &kafka.Transport{TLS: options.tls(), SASL: own.mechanism(options)}
}

func (own segment) dialer(options options) *kafka.Dialer {
	return &kafka.Dialer{Timeout: deadline, TLS: options.tls(), SASLMechanism: own.mechanism(options)}
}

// --- records ---

var segmentCodecs = map[string]kafka.Compression{
	"gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
}

var segmentAcks = map[string]kafka.RequiredAcks{"all": kafka.RequireAll, "1": kafka.RequireOne, "0": kafka.RequireNone}

type segmentPublisher struct{ writer *kafka.Writer }

func (own segment) publisher(options options, topic string) publisher {
	return segmentPublisher{&kafka.Writer{
		Addr:                   kafka.TCP(options.servers()),
		Topic:                  topic,
		BatchSize:              number(options.or("batch.num.messages", "100")),
		BatchTimeout:           5 * time.Millisecond,
		RequiredAcks:           segmentAcks[options.or("acks", "all")],
		Compression:            segmentCodecs[options.or("compression.type", "none")],
		Async:                  true,
		AllowAutoTopicCreation: true,
		Transport:              own.transport(options),
		Completion: func(messages []kafka.Message, err error) {
			for _, each := range messages {
				each.WriterData.(func(int64, error))(each.Offset, err)
			}
		},
	}}
}

func (p segmentPublisher) send(record record, answered func(int64, error)) {
	message := kafka.Message{Key: record.key, Value: record.value, WriterData: answered}
	for _, each := range record.headers {
		message.Headers = append(message.Headers, kafka.Header{Key: each.name, Value: each.value})
	}
	if err := p.writer.WriteMessages(context.Background(), message); err != nil {
		answered(-1, err)
	}
}

func (p segmentPublisher) close() { check(p.writer.Close()) }

func (own segment) reader(options options, topic string, partition int, offset int64) *kafka.Reader {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{options.servers()}, Topic: topic, Partition: partition, Dialer: own.dialer(options),
		MaxWait: time.Second, IsolationLevel: kafka.ReadCommitted,
	})
	check(reader.SetOffset(offset))
	return reader
}

func (own segment) read(options options, topic string, count int, found func(record)) {
	reader := own.reader(options, topic, 0, 0)
	for left := count; left > 0; left-- {
		message, err := reader.ReadMessage(context.Background())
		check(err)
		found(ofSegment(message))
	}
	check(reader.Close())
}

func ofSegment(own kafka.Message) record {
	found := record{offset: own.Offset, value: own.Value, key: own.Key}
	for _, each := range own.Headers {
		found.headers = append(found.headers, header{each.Key, each.Value})
	}
	return found
}

func (own segment) places(options options, topic string, times []int64) places {
	conn, err := own.dialer(options).DialLeader(context.Background(), "tcp", options.servers(), topic, 0)
	check(err)
	defer conn.Close()
	partitions, err := conn.ReadPartitions(topic)
	check(err)
	found := places{partitions: len(partitions)}
	found.first, found.end, err = conn.ReadOffsets()
	check(err)
	for _, each := range times {
		at, err := conn.ReadOffset(time.UnixMilli(each))
		check(err)
		found.at = append(found.at, at)
	}
	return found
}

// --- groups ---

func (own segment) consume(options options, group string, topic string, leave <-chan struct{}) {
	members, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID: group, Brokers: []string{options.servers()}, Dialer: own.dialer(options), Topics: []string{topic},
		HeartbeatInterval: 500 * time.Millisecond, SessionTimeout: options.duration("session", 6_000),
		JoinGroupBackoff: 500 * time.Millisecond, Timeout: deadline,
	})
	check(err)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-leave
		cancel()
	}()
	for {
		generation, err := members.Next(ctx)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			say("failed", err.Error())
			continue
		}
		own.begin(options, topic, generation)
	}
	check(members.Close())
}

func (own segment) begin(options options, topic string, generation *kafka.Generation) {
	held, partitions, ends := newHolding(), []int32{}, sync.WaitGroup{}
	for _, each := range generation.Assignments[topic] {
		partitions = append(partitions, int32(each.ID))
	}
	held.assigned(partitions)
	for _, each := range generation.Assignments[topic] {
		ends.Add(1)
		generation.Start(func(ctx context.Context) {
			defer ends.Done()
			own.handle(ctx, own.reader(options, topic, each.ID, each.Offset), generation)
		})
	}
	generation.Start(func(ctx context.Context) {
		<-ctx.Done()
		ends.Wait()
		held.revoked(partitions)
	})
}

func (own segment) handle(ctx context.Context, reader *kafka.Reader, generation *kafka.Generation) {
	for ctx.Err() == nil {
		message, err := reader.ReadMessage(ctx)
		for count, more := 1, ctx; err == nil; count++ {
			got(int32(message.Partition), message.Offset, message.Value)
			if count == 1 {
				within, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
				defer cancel()
				more = within
			}
			if count == batch {
				break
			}
			var next kafka.Message
			if next, err = reader.ReadMessage(more); err == nil {
				message = next
			}
		}
		if message.Topic == "" {
			continue
		}
		end := message.Offset + 1
		offsets := map[string]map[int]int64{message.Topic: {message.Partition: end}}
		if err := generation.CommitOffsets(offsets); err != nil {
			say("failed", err.Error())
			continue
		}
		say("committed", map[int]int64{message.Partition: end})
	}
	check(reader.Close())
}

// --- administration ---

type segmentAdministrator struct{ client *kafka.Client }

var errNotOffered = errors.New("the library does not offer it")

func (own segment) administrator(options options) administrator {
	transport := own.transport(options)
	return segmentAdministrator{&kafka.Client{Addr: kafka.TCP(options.servers()), Timeout: deadline, Transport: transport}}
}

func (a segmentAdministrator) create(topic string, partitions int, configs options) error {
	config := kafka.TopicConfig{Topic: topic, NumPartitions: partitions, ReplicationFactor: 3}
	for name, value := range configs {
		config.ConfigEntries = append(config.ConfigEntries, kafka.ConfigEntry{ConfigName: name, ConfigValue: value})
	}
	request := &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{config}}
	answer, err := a.client.CreateTopics(context.Background(), request)
	if err != nil {
		return err
	}
	return answer.Errors[topic]
}

func (a segmentAdministrator) partitions(topic string) (int, error) {
	answer, err := a.client.Metadata(context.Background(), &kafka.MetadataRequest{Topics: []string{topic}})
	if err != nil {
		return 0, err
	}
	return len(answer.Topics[0].Partitions), answer.Topics[0].Error
}

func (a segmentAdministrator) configs(topic string) (options, error) {
	resource := kafka.DescribeConfigRequestResource{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic}
	request := &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{resource}}
	answer, err := a.client.DescribeConfigs(context.Background(), request)
	if err != nil {
		return nil, err
	}
	found := options{}
	for _, each := range answer.Resources[0].ConfigEntries {
		found[each.ConfigName] = each.ConfigValue
	}
	return found, answer.Resources[0].Error
}

func (a segmentAdministrator) setConfig(topic string, name string, value string) error {
	config := kafka.IncrementalAlterConfigsRequestConfig{
		Name: name, Value: value, ConfigOperation: kafka.ConfigOperationSet,
	}
	resource := kafka.IncrementalAlterConfigsRequestResource{
		ResourceType: kafka.ResourceTypeTopic, ResourceName: topic,
		Configs: []kafka.IncrementalAlterConfigsRequestConfig{config},
	}
	request := &kafka.IncrementalAlterConfigsRequest{
		Resources: []kafka.IncrementalAlterConfigsRequestResource{resource},
	}
	answer, err := a.client.IncrementalAlterConfigs(context.Background(), request)
	if err != nil {
		return err
	}
	return answer.Resources[0].Error
}

func (a segmentAdministrator) grow(topic string, partitions int) error {
	config := kafka.TopicPartitionsConfig{Name: topic, Count: int32(partitions)}
	request := &kafka.CreatePartitionsRequest{Topics: []kafka.TopicPartitionsConfig{config}}
	answer, err := a.client.CreatePartitions(context.Background(), request)
	if err != nil {
		return err
	}
	return answer.Errors[topic]
}

func (a segmentAdministrator) deleteRecords(string, int64) (int64, error) { return 0, errNotOffered }

func (a segmentAdministrator) delete(topic string) error {
	answer, err := a.client.DeleteTopics(context.Background(), &kafka.DeleteTopicsRequest{Topics: []string{topic}})
	if err != nil {
		return err
	}
	return answer.Errors[topic]
}

func (a segmentAdministrator) group(name string, topic string) (groupView, error) {
	ctx := context.Background()
	listed, err := a.client.ListGroups(ctx, &kafka.ListGroupsRequest{})
	if err != nil {
		return groupView{}, err
	}
	described, err := a.client.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{name}})
	if err != nil {
		return groupView{}, err
	}
	fetched, err := a.client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: name})
	if err != nil {
		return groupView{}, err
	}
	own := described.Groups[0]
	found := groupView{State: own.GroupState, Members: len(own.Members), Offsets: map[int32]int64{}}
	for _, each := range listed.Groups {
		found.Listed = found.Listed || each.GroupID == name
	}
	for _, each := range fetched.Topics[topic] {
		found.Offsets[int32(each.Partition)] = each.CommittedOffset
	}
	return found, errors.Join(listed.Error, own.Error, fetched.Error)
}

func (a segmentAdministrator) deleteGroup(name string) error {
	answer, err := a.client.DeleteGroups(context.Background(), &kafka.DeleteGroupsRequest{GroupIDs: []string{name}})
	if err != nil {
		return err
	}
	return answer.Errors[name]
}
