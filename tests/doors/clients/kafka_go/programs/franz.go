package main

import (
	"context"
	"errors"
	"net"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
)

type franz struct{}

func (franz) client(options options, more ...kgo.Opt) *kgo.Client {
	own := []kgo.Opt{
		kgo.SeedBrokers(options.servers()),
		kgo.WithLogger(kgo.BasicLogger(os.Stderr, kgo.LogLevelWarn, nil)),
	}
	if config := options.tls(); config != nil {
		own = append(own, kgo.DialTLSConfig(config))
	}
	if user, password := options.login(); password != "" {
		own = append(own, kgo.SASL(plain.Auth{User: user, Pass: password}.AsMechanism()))
	}
	client, err := kgo.NewClient(append(own, more...)...)
	check(err)
	return client
}

// --- records ---

var franzCodecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

var franzAcks = map[string]kgo.Acks{"all": kgo.AllISRAcks(), "1": kgo.LeaderAck(), "0": kgo.NoAck()}

type franzPublisher struct{ client *kgo.Client }

func (own franz) publisher(options options, topic string) publisher {
	with := []kgo.Opt{
		kgo.DefaultProduceTopic(topic), kgo.AllowAutoTopicCreation(),
		kgo.ProducerBatchCompression(franzCodecs[options.or("compression.type", "none")]),
		kgo.RequiredAcks(franzAcks[options.or("acks", "all")]),
	}
	if size, ok := options["batch.size"]; ok {
		with = append(with, kgo.ProducerBatchMaxBytes(int32(number(size))))
	}
	if options["enable.idempotence"] == "false" {
		with = append(with, kgo.DisableIdempotentWrite())
	}
	if id, ok := options["transactional.id"]; ok {
		with = append(with, kgo.TransactionalID(id))
	}
	client := own.client(options, with...)
	if _, ok := options["transactional.id"]; ok {
		check(client.BeginTransaction())
	}
	return franzPublisher{client}
}

func (p franzPublisher) send(record record, answered func(int64, error)) {
	own := &kgo.Record{Key: record.key, Value: record.value}
	for _, each := range record.headers {
		own.Headers = append(own.Headers, kgo.RecordHeader{Key: each.name, Value: each.value})
	}
	p.client.Produce(context.Background(), own, func(done *kgo.Record, err error) { answered(done.Offset, err) })
}

func (p franzPublisher) close() {
	check(p.client.Flush(context.Background()))
	p.client.Close()
}

func (own franz) read(options options, topic string, count int, found func(record)) {
	from := map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(0)}}
	client := own.client(options, kgo.ConsumePartitions(from), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	defer client.Close()
	for left := count; left > 0; {
		fetches := client.PollRecords(context.Background(), left)
		check(fetches.Err())
		for _, each := range fetches.Records() {
			found(ofFranz(each))
			left--
		}
	}
}

func ofFranz(own *kgo.Record) record {
	found := record{offset: own.Offset, value: own.Value, key: own.Key}
	for _, each := range own.Headers {
		found.headers = append(found.headers, header{each.Key, each.Value})
	}
	return found
}

// places has the end for a time behind it, as the library does.
func (own franz) places(options options, topic string, times []int64) places {
	client := own.client(options)
	defer client.Close()
	admin, ctx := kadm.NewClient(client), context.Background()
	topics, err := admin.ListTopics(ctx, topic)
	check(err)
	find := func(listed kadm.ListedOffsets, err error) int64 {
		check(err)
		check(listed.Error())
		at, _ := listed.Lookup(topic, 0)
		return at.Offset
	}
	found := places{partitions: len(topics[topic].Partitions)}
	found.first = find(admin.ListStartOffsets(ctx, topic))
	found.end = find(admin.ListEndOffsets(ctx, topic))
	for _, each := range times {
		found.at = append(found.at, find(admin.ListOffsetsAfterMilli(ctx, each, topic)))
	}
	return found
}

// --- groups ---

// patientDial waits for a door that is started again: after three connections that are refused within a second, the
// library gives up its commits and its partitions.
func patientDial(ctx context.Context, network string, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, deadline/2)
	defer cancel()
	for {
		found, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err == nil || ctx.Err() != nil {
			return found, err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (own franz) consume(options options, group string, topic string, leave <-chan struct{}) {
	held := newHolding()
	assigned := func(_ context.Context, _ *kgo.Client, now map[string][]int32) { held.assigned(now[topic]) }
	revoked := func(_ context.Context, _ *kgo.Client, gone map[string][]int32) { held.revoked(gone[topic]) }
	with := []kgo.Opt{
		kgo.Dialer(patientDial), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.SessionTimeout(options.duration("session", 6_000)), kgo.HeartbeatInterval(500 * time.Millisecond),
		kgo.OnPartitionsAssigned(assigned), kgo.OnPartitionsRevoked(revoked), kgo.OnPartitionsLost(revoked),
	}
	if options["balancer"] == "range" {
		with = append(with, kgo.Balancers(kgo.RangeBalancer()))
	}
	if id, ok := options["instance"]; ok {
		with = append(with, kgo.InstanceID(id))
	}
	client := own.client(options, with...)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-leave
		cancel()
	}()
	for ctx.Err() == nil {
		fetches := client.PollRecords(ctx, batch)
		fetches.EachError(func(_ string, _ int32, err error) {
			if !errors.Is(err, context.Canceled) {
				say("failed", err.Error())
			}
		})
		handleFranz(client, fetches.Records())
		client.AllowRebalance()
	}
	client.CloseAllowingRebalance()
}

func handleFranz(client *kgo.Client, records []*kgo.Record) {
	done := map[int32]int64{}
	for _, each := range records {
		got(each.Partition, each.Offset, each.Value)
		done[each.Partition] = each.Offset + 1
	}
	if len(done) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	if err := client.CommitRecords(ctx, records...); err != nil {
		say("failed", err.Error())
		return
	}
	say("committed", done)
}

// --- administration ---

type franzAdministrator struct{ admin *kadm.Client }

func (own franz) administrator(options options) administrator {
	return franzAdministrator{kadm.NewClient(own.client(options))}
}

func (a franzAdministrator) create(topic string, partitions int, configs options) error {
	given := map[string]*string{}
	for name, value := range configs {
		given[name] = &value
	}
	_, err := a.admin.CreateTopic(context.Background(), int32(partitions), 3, given, topic)
	return err
}

func (a franzAdministrator) partitions(topic string) (int, error) {
	topics, err := a.admin.ListTopics(context.Background(), topic)
	if err != nil {
		return 0, err
	}
	return len(topics[topic].Partitions), topics.Error()
}

func (a franzAdministrator) configs(topic string) (options, error) {
	resources, err := a.admin.DescribeTopicConfigs(context.Background(), topic)
	if err != nil {
		return nil, err
	}
	found := options{}
	for _, each := range resources[0].Configs {
		found[each.Key] = each.MaybeValue()
	}
	return found, resources[0].Err
}

func (a franzAdministrator) setConfig(topic string, name string, value string) error {
	change := kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: &value}
	answers, err := a.admin.AlterTopicConfigs(context.Background(), []kadm.AlterConfig{change}, topic)
	if err != nil {
		return err
	}
	return answers[0].Err
}

func (a franzAdministrator) grow(topic string, partitions int) error {
	answers, err := a.admin.UpdatePartitions(context.Background(), partitions, topic)
	if err != nil {
		return err
	}
	return answers[topic].Err
}

func (a franzAdministrator) deleteRecords(topic string, offset int64) (int64, error) {
	given := kadm.Offsets{}
	given.Add(kadm.Offset{Topic: topic, Partition: 0, At: offset})
	answers, err := a.admin.DeleteRecords(context.Background(), given)
	if err != nil {
		return 0, err
	}
	found, _ := answers.Lookup(topic, 0)
	return found.LowWatermark, found.Err
}

func (a franzAdministrator) delete(topic string) error {
	_, err := a.admin.DeleteTopic(context.Background(), topic)
	return err
}

func (a franzAdministrator) group(name string, topic string) (groupView, error) {
	ctx := context.Background()
	listed, err := a.admin.ListGroups(ctx)
	if err != nil {
		return groupView{}, err
	}
	described, err := a.admin.DescribeGroups(ctx, name)
	if err != nil {
		return groupView{}, err
	}
	fetched, err := a.admin.FetchOffsets(ctx, name)
	if err != nil {
		return groupView{}, err
	}
	_, isListed := listed[name]
	own := described[name]
	found := groupView{Listed: isListed, State: own.State, Members: len(own.Members), Offsets: map[int32]int64{}}
	for _, each := range fetched[topic] {
		found.Offsets[each.Partition] = each.At
	}
	return found, errors.Join(own.Err, fetched.Error())
}

func (a franzAdministrator) deleteGroup(name string) error {
	_, err := a.admin.DeleteGroup(context.Background(), name)
	return err
}
