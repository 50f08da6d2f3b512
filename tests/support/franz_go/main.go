// A program of a client that nobody here wrote: franz-go writes records, reads them again and prints them.
//
// It reads its configuration as JSON from standard input, see config. It prints one line per record read.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

type config struct {
	Servers     []string
	Topic       string
	Values      []string // written in order, the last one again and again for Seconds
	Seconds     float64
	Delivery    float64 // seconds until a record fails
	CA          string  // PEM files; without TLS if empty
	Certificate string
	Key         string
	Mechanism   string // without SASL if empty
	User        string
	Password    string
	Token       string
	Extensions  map[string]string
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	var given config
	if err := json.NewDecoder(os.Stdin).Decode(&given); err != nil {
		return err
	}
	options, err := given.options()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	producer, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer producer.Close()
	written := 0
	send := func(value string) error {
		record := &kgo.Record{Topic: given.Topic, Value: []byte(value)}
		written++
		return producer.ProduceSync(ctx, record).FirstErr()
	}
	for _, value := range given.Values {
		if err := send(value); err != nil {
			return err
		}
	}
	for end := time.Now().Add(time.Duration(given.Seconds * float64(time.Second))); time.Now().Before(end); {
		if err := send(given.Values[len(given.Values)-1]); err != nil {
			return err
		}
	}
	consumer, err := kgo.NewClient(append(options, kgo.ConsumeTopics(given.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	if err != nil {
		return err
	}
	defer consumer.Close()
	for read := 0; read < written; {
		fetches := consumer.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			read++
			fmt.Println(string(record.Value))
		})
	}
	return nil
}

func (given *config) options() ([]kgo.Opt, error) {
	options := []kgo.Opt{
		kgo.SeedBrokers(given.Servers...),
		kgo.AllowAutoTopicCreation(),
		kgo.RecordDeliveryTimeout(time.Duration(given.Delivery * float64(time.Second))),
		kgo.RequestRetries(2),
	}
	if given.CA != "" {
		pem, err := os.ReadFile(given.CA)
		if err != nil {
			return nil, err
		}
		secured := &tls.Config{RootCAs: x509.NewCertPool()}
		if !secured.RootCAs.AppendCertsFromPEM(pem) {
			return nil, errors.New("no certificate in " + given.CA)
		}
		if given.Certificate != "" {
			pair, err := tls.LoadX509KeyPair(given.Certificate, given.Key)
			if err != nil {
				return nil, err
			}
			secured.Certificates = []tls.Certificate{pair}
		}
		options = append(options, kgo.DialTLSConfig(secured))
	}
	if given.Mechanism != "" {
		mechanism, err := given.mechanism()
		if err != nil {
			return nil, err
		}
		options = append(options, kgo.SASL(mechanism))
	}
	return options, nil
}

func (given *config) mechanism() (sasl.Mechanism, error) {
	switch given.Mechanism {
	case "PLAIN":
		return plain.Auth{User: given.User, Pass: given.Password}.AsMechanism(), nil
	case "SCRAM-SHA-256":
		return scram.Auth{User: given.User, Pass: given.Password}.AsSha256Mechanism(), nil
	case "SCRAM-SHA-512":
		return scram.Auth{User: given.User, Pass: given.Password}.AsSha512Mechanism(), nil
	case "OAUTHBEARER":
		return oauth.Auth{Token: given.Token, Extensions: given.Extensions}.AsMechanism(), nil
	}
	return nil, errors.New("unknown mechanism " + given.Mechanism)
}
