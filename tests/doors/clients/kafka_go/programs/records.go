package main

import (
	"encoding/hex"
	"strings"
)

type header struct {
	name  string
	value []byte
}

// record has nil for null.
type record struct {
	offset     int64
	value, key []byte
	headers    []header
}

// recordOf reads a line of value, key, and name and value of each header: as x and hexadecimal digits, - is null.
func recordOf(line string) record {
	words := strings.Split(line, " ")
	found := record{value: bytesOf(words[0]), key: bytesOf(words[1])}
	for at := 2; at < len(words); at += 2 {
		found.headers = append(found.headers, header{string(bytesOf(words[at])), bytesOf(words[at+1])})
	}
	return found
}

func (r record) String() string {
	words := []string{textOf(r.value), textOf(r.key)}
	for _, each := range r.headers {
		words = append(words, textOf([]byte(each.name)), textOf(each.value))
	}
	return strings.Join(words, " ")
}

func bytesOf(word string) []byte {
	if word == "-" {
		return nil
	}
	found, err := hex.DecodeString(word[1:])
	check(err)
	return found
}

func textOf(data []byte) string {
	if data == nil {
		return "-"
	}
	return "x" + hex.EncodeToString(data)
}
