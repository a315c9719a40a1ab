package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// packed says how an answer is encoded, and whether what it unpacks to reads.
func (s *session) packed(method, path string, body any, options ...option) {
	a := s.do(method, path, body, append(options, quiet)...)
	text, sound := a.body, "as it is"
	if a.header.Get("Content-Encoding") == "gzip" {
		reader, err := gzip.NewReader(bytes.NewReader(a.body))
		if err == nil {
			text, err = io.ReadAll(reader)
		}
		sound = fmt.Sprintf("unpacked without a failure: %t", err == nil)
	}
	var object map[string]any
	read := json.Unmarshal(text, &object) == nil
	s.say("  %d%s %s, JSON: %t, kind: %v", a.code, headers(a.header), sound, read, object["kind"])
}

// Answers that are long, and clients that take them compressed, or not.
func init() {
	long := func(s *session, name string, size int) map[string]any {
		// Annotations may have 256 KiB.
		return object(name, "spec.reference", strings.Repeat("a", size), "spec.referenceType", "Flunder")
	}
	for _, coding := range []string{
		"gzip", " gzip ", "GZIP", "gzip, deflate, br", "br,gzip", "br, gzip;q=1.0", "gzip;q=1", "gzip;q=0", "*", "identity", "identity;q=0", "*;q=0", "x-gzip", ",gzip,", "br;q=1.0, gzip;q=0.8, *;q=0.1",
		"gzip gzip", "deflate", "zstd",
	} {
		for _, protocol := range []struct {
			name   string
			option option
		}{{"HTTP/1.1", http1}, {"HTTP/2", func(*request) {}}} {
			add("compression", fmt.Sprintf("%q over %s", coding, protocol.name), func(s *session) {
				s.setup("POST", s.flunders(), long(s, "a", 200_000))
				s.packed("GET", s.flunder("a"), nil, header("Accept-Encoding", coding), protocol.option)
				s.packed("GET", s.flunders(), nil, header("Accept-Encoding", coding), protocol.option)
			})
		}
	}
	add("compression", "two headers", func(s *session) {
		s.setup("POST", s.flunders(), long(s, "a", 200_000))
		s.packed("GET", s.flunder("a"), nil, header("Accept-Encoding", "br"), header("Accept-Encoding", "gzip"))
		s.packed("GET", s.flunder("a"), nil, header("Accept-Encoding", "gzip"), header("Accept-Encoding", "br"))
	})
	for _, size := range []int{100_000, 130_400, 131_072, 140_000, 300_000} {
		add("compression", fmt.Sprintf("a text of %d bytes", size), func(s *session) {
			s.setup("POST", s.flunders(), long(s, "a", size))
			s.packed("GET", s.flunder("a"), nil, header("Accept-Encoding", "gzip"))
			s.packed("GET", s.flunders(), nil, header("Accept-Encoding", "gzip"))
		})
	}
	for _, form := range []struct{ name, accept string }{
		{"a table", asTable}, {"metadata", asPartialList}, {"YAML", "application/yaml"}, {"JSON", "application/json"}, {"a stream", "application/json;stream=watch"},
	} {
		add("compression", "of "+form.name, func(s *session) {
			s.setup("POST", s.flunders(), long(s, "a", 200_000))
			s.create("b", "metadata.annotations", map[string]any{"x": strings.Repeat("a", 200_000)})
			s.packed("GET", s.flunders(), nil, header("Accept-Encoding", "gzip"), accept(form.accept))
			s.packed("GET", s.flunders()+"?includeObject=Object", nil, header("Accept-Encoding", "gzip"), accept(form.accept))
			s.packed("GET", s.flunders()+"?limit=1", nil, header("Accept-Encoding", "gzip"), accept(form.accept))
		})
	}
	add("compression", "of what is written", func(s *session) {
		gzip := header("Accept-Encoding", "gzip")
		s.packed("POST", s.flunders(), long(s, "a", 200_000), gzip)
		s.packed("PATCH", s.flunder("a"), `{"metadata":{"labels":{"a":"b"}}}`, gzip, contentType(merge))
		s.packed("PUT", s.flunder("a"), long(s, "a", 200_001), gzip)
		a := s.do("GET", s.flunder("a"), nil, quiet)
		s.packed("PUT", s.flunder("a"), with(a.json, "spec.referenceType", "Fischer"), gzip)
		s.packed("PATCH", s.flunder("b")+"?fieldManager=m", long(s, "b", 200_000), gzip, contentType(apply))
		s.packed("HEAD", s.flunder("a"), nil, gzip)
		s.packed("DELETE", s.flunder("a")+"?dryRun=All", nil, gzip)
		s.packed("DELETE", s.flunders(), nil, gzip)
	})
	add("compression", "of failures", func(s *session) {
		gzip := header("Accept-Encoding", "gzip")
		s.packed("GET", s.flunder("none"), nil, gzip)
		// Longer than it takes to be compressed.
		s.packed("POST", s.flunders(), object("a", "metadata.labels", map[string]any{strings.Repeat("x", 150_000): "y"}), gzip)
	})
	add("compression", "of a watch", func(s *session) {
		s.setup("POST", s.flunders(), long(s, "a", 200_000))
		a := s.do("GET", s.flunders()+"?watch=1&timeoutSeconds=1", nil, header("Accept-Encoding", "gzip"), quiet)
		s.say("%d%s", a.code, headers(a.header))
	})
}
