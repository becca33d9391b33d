package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

// ibm is IBM/sarama.
type ibm struct{}

// many is of retries that a program gives up after a few of, by default.
const many = 1_000_000

func (ibm) config(options options) *sarama.Config {
	config := sarama.NewConfig()
	if text, ok := options["version"]; ok {
		version, err := sarama.ParseKafkaVersion(text)
		check(err)
		config.Version = version
	}
	if own := options.tls(); own != nil {
		config.Net.TLS.Enable, config.Net.TLS.Config = true, own
	}
	if user, password := options.login(); password != "" {
		config.Net.SASL.Enable, config.Net.SASL.User, config.Net.SASL.Password = true, user, password
	}
	config.Metadata.Retry.Max = number(options.or("metadata.retries", "1000"))
	return config
}

// --- records ---

var saramaCodecs = map[string]sarama.CompressionCodec{
	"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
	"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
}

var saramaAcks = map[string]sarama.RequiredAcks{"all": sarama.WaitForAll, "1": sarama.WaitForLocal, "0": sarama.NoResponse}

type ibmPublisher struct {
	producer sarama.AsyncProducer
	topic    string
	ends     sync.WaitGroup
	pending  sync.WaitGroup
}

func (own ibm) publisher(options options, topic string) publisher {
	config := own.config(options)
	if options["enable.idempotence"] != "false" {
		config.Producer.Idempotent, config.Net.MaxOpenRequests = true, 1
	}
	config.Producer.RequiredAcks = saramaAcks[options.or("acks", "all")]
	config.Producer.Compression = saramaCodecs[options.or("compression.type", "none")]
	config.Producer.Retry.Max = many
	config.Producer.Return.Successes = true
	config.Producer.Flush.Frequency = 5 * time.Millisecond
	config.Producer.Flush.MaxMessages = number(options.or("batch.num.messages", "0"))
	if id, ok := options["transactional.id"]; ok {
		config.Producer.Transaction.ID = id
	}
	producer, err := sarama.NewAsyncProducer([]string{options.servers()}, config)
	check(err)
	found := &ibmPublisher{producer: producer, topic: topic}
	found.ends.Go(func() {
		for done := range producer.Successes() {
			done.Metadata.(func(int64, error))(done.Offset, nil)
			found.pending.Done()
		}
	})
	found.ends.Go(func() {
		for failed := range producer.Errors() {
			failed.Msg.Metadata.(func(int64, error))(-1, failed.Err)
			found.pending.Done()
		}
	})
	return found
}

func (p *ibmPublisher) send(record record, answered func(int64, error)) {
	message := &sarama.ProducerMessage{Topic: p.topic, Metadata: answered}
	if record.key != nil {
		message.Key = sarama.ByteEncoder(record.key)
	}
	if record.value != nil {
		message.Value = sarama.ByteEncoder(record.value)
	}
	for _, each := range record.headers {
		own := sarama.RecordHeader{Key: []byte(each.name), Value: each.value}
		message.Headers = append(message.Headers, own)
	}
	p.pending.Add(1)
	p.producer.Input() <- message
}

// close waits for all answers first: the library repeats no batch any more while it closes.
func (p *ibmPublisher) close() {
	p.pending.Wait()
	p.producer.AsyncClose()
	p.ends.Wait()
}

func (own ibm) read(options options, topic string, count int, found func(record)) {
	config := own.config(options)
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	consumer, err := sarama.NewConsumer([]string{options.servers()}, config)
	check(err)
	partition, err := consumer.ConsumePartition(topic, 0, 0)
	check(err)
	for left := count; left > 0; left-- {
		message, ok := <-partition.Messages()
		if !ok {
			check(errors.New("the partition has ended"))
		}
		found(ofSarama(message))
	}
	check(partition.Close())
	check(consumer.Close())
}

func ofSarama(own *sarama.ConsumerMessage) record {
	found := record{offset: own.Offset, value: own.Value, key: own.Key}
	for _, each := range own.Headers {
		found.headers = append(found.headers, header{string(each.Key), each.Value})
	}
	return found
}

func (own ibm) places(options options, topic string, times []int64) places {
	client, err := sarama.NewClient([]string{options.servers()}, own.config(options))
	check(err)
	defer client.Close()
	partitions, err := client.Partitions(topic)
	check(err)
	find := func(time int64) int64 {
		offset, err := client.GetOffset(topic, 0, time)
		check(err)
		return offset
	}
	found := places{partitions: len(partitions), first: find(sarama.OffsetOldest), end: find(sarama.OffsetNewest)}
	for _, each := range times {
		found.at = append(found.at, find(each))
	}
	return found
}

// --- groups ---

// commits is how often a member repeats a commit of a session that has ended.
const commits = 20

type ibmHandler struct {
	held         *holding
	group, topic string
	admin        sarama.ClusterAdmin
	committing   sync.Mutex
}

func (own ibm) consume(options options, group string, topic string, leave <-chan struct{}) {
	config := own.config(options)
	config.Consumer.Return.Errors = true
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Group.Session.Timeout = options.duration("session", 6_000)
	config.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	config.Consumer.Group.Rebalance.Retry.Max = many
	config.Consumer.Group.Rebalance.Retry.Backoff = 500 * time.Millisecond
	config.Consumer.Group.InstanceId = options["instance"]
	servers := []string{options.servers()}
	members, err := sarama.NewConsumerGroup(servers, group, config)
	check(err)
	admin, err := sarama.NewClusterAdmin(servers, config)
	check(err)
	go func() {
		for err := range members.Errors() {
			say("failed", err.Error())
		}
	}()
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-leave
		cancel()
	}()
	handler := &ibmHandler{held: newHolding(), group: group, topic: topic, admin: admin}
	for ctx.Err() == nil {
		if err := members.Consume(ctx, []string{topic}, handler); err != nil && ctx.Err() == nil {
			say("failed", err.Error())
		}
	}
	check(members.Close())
}

func (h *ibmHandler) Setup(session sarama.ConsumerGroupSession) error {
	h.held.assigned(session.Claims()[h.topic])
	return nil
}

func (h *ibmHandler) Cleanup(session sarama.ConsumerGroupSession) error {
	h.held.revoked(session.Claims()[h.topic])
	return nil
}

func (h *ibmHandler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		end, left := message.Offset, batch
		for open := true; open; left-- {
			got(message.Partition, message.Offset, message.Value)
			session.MarkMessage(message, "")
			end = message.Offset + 1
			if message, open = h.next(claim, left > 1); message == nil {
				break
			}
		}
		h.commit(session, claim.Partition(), end)
	}
	return nil
}

// next returns a message that is there already, if the batch has room for it.
func (h *ibmHandler) next(claim sarama.ConsumerGroupClaim, room bool) (*sarama.ConsumerMessage, bool) {
	if room {
		select {
		case message, open := <-claim.Messages():
			return message, open
		default:
		}
	}
	return nil, false
}

// commit asks for the offset: the library does not say whether a commit was refused.
func (h *ibmHandler) commit(session sarama.ConsumerGroupSession, partition int32, end int64) {
	h.committing.Lock()
	defer h.committing.Unlock()
	for attempt := 0; attempt < commits || session.Context().Err() == nil; attempt++ {
		session.Commit()
		found, err := h.admin.ListConsumerGroupOffsets(h.group, map[string][]int32{h.topic: {partition}})
		if err == nil {
			block := found.GetBlock(h.topic, partition)
			if block != nil && block.Err == sarama.ErrNoError && block.Offset >= end {
				say("committed", map[int32]int64{partition: end})
				return
			}
		}
		say("failed", "a commit")
		time.Sleep(200 * time.Millisecond)
	}
}

// --- administration ---

type ibmAdministrator struct {
	client sarama.Client
	admin  sarama.ClusterAdmin
}

func (own ibm) administrator(options options) administrator {
	config := own.config(options)
	config.Admin.Timeout = deadline / 2
	client, err := sarama.NewClient([]string{options.servers()}, config)
	check(err)
	admin, err := sarama.NewClusterAdminFromClient(client)
	check(err)
	return ibmAdministrator{client, admin}
}

func (a ibmAdministrator) create(topic string, partitions int, configs options) error {
	entries := map[string]*string{}
	for name, value := range configs {
		entries[name] = &value
	}
	detail := &sarama.TopicDetail{NumPartitions: int32(partitions), ReplicationFactor: 3, ConfigEntries: entries}
	return a.admin.CreateTopic(topic, detail, false)
}

func (a ibmAdministrator) partitions(topic string) (int, error) {
	topics, err := a.admin.DescribeTopics([]string{topic})
	if err != nil {
		return 0, err
	}
	if topics[0].Err != sarama.ErrNoError {
		return 0, topics[0].Err
	}
	return len(topics[0].Partitions), nil
}

func (a ibmAdministrator) configs(topic string) (options, error) {
	entries, err := a.admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic})
	found := options{}
	for _, each := range entries {
		found[each.Name] = each.Value
	}
	return found, err
}

func (a ibmAdministrator) setConfig(topic string, name string, value string) error {
	entry := sarama.IncrementalAlterConfigsEntry{Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value}
	entries := map[string]sarama.IncrementalAlterConfigsEntry{name: entry}
	return a.admin.IncrementalAlterConfig(sarama.TopicResource, topic, entries, false)
}

func (a ibmAdministrator) grow(topic string, partitions int) error {
	return a.admin.CreatePartitions(topic, int32(partitions), nil, false)
}

// deleteRecords asks for the first offset: the library does not return the one that is answered.
func (a ibmAdministrator) deleteRecords(topic string, offset int64) (int64, error) {
	if err := a.admin.DeleteRecords(topic, map[int32]int64{0: offset}); err != nil {
		return 0, err
	}
	return a.client.GetOffset(topic, 0, sarama.OffsetOldest)
}

func (a ibmAdministrator) delete(topic string) error {
	return a.admin.DeleteTopic(topic)
}

func (a ibmAdministrator) group(name string, topic string) (groupView, error) {
	listed, err := a.admin.ListConsumerGroups()
	if err != nil {
		return groupView{}, err
	}
	described, err := a.admin.DescribeConsumerGroups([]string{name})
	if err != nil {
		return groupView{}, err
	}
	fetched, err := a.admin.ListConsumerGroupOffsets(name, nil)
	if err != nil {
		return groupView{}, err
	}
	_, isListed := listed[name]
	own := described[0]
	found := groupView{Listed: isListed, State: own.State, Members: len(own.Members), Offsets: map[int32]int64{}}
	for partition, block := range fetched.Blocks[topic] {
		found.Offsets[partition] = block.Offset
	}
	if own.Err != sarama.ErrNoError {
		return found, own.Err
	}
	return found, nil
}

func (a ibmAdministrator) deleteGroup(name string) error {
	return a.admin.DeleteConsumerGroup(name)
}
