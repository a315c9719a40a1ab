package main

import (
	"reflect"
	"strings"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	openapi_v3 "github.com/google/gnostic-models/openapiv3"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"
)

// What OpenAPI documents say.
func init() {
	addDirect("openapi", "the documents of v3", func(s *session) {
		for _, name := range sortedKeys(asObject(s.do("GET", "/openapi/v3", nil, quiet).at("paths"))) {
			if !ofOthers.MatchString(name) {
				s.say("%s", name)
			}
		}
	})
	for _, path := range []string{
		"/openapi/v2", "/openapi/v3/" + strings.TrimPrefix(root, "/"), "/openapi/v3/apis/wardle.example.com", "/openapi/v3/apis", "/openapi/v3/version",
	} {
		for _, part := range []struct {
			name  string
			write func(*session, map[string]any)
		}{
			{"outline", (*session).outline},
			{"operations", (*session).operations},
			{"schemas", (*session).schemas},
			{"media types", func(s *session, document map[string]any) { s.media(document["paths"]) }},
		} {
			addDirect("openapi", path+", its "+part.name, func(s *session) { part.write(s, s.do("GET", path, nil, quiet).json) })
		}
	}
}

// OpenAPI documents in protobuf and compressed.
func init() {
	// document is a message that can be said in YAML.
	type document interface {
		proto.Message
		YAMLValue(comment string) ([]byte, error)
	}
	for _, form := range []struct {
		path, media string
		message     document
		parse       func([]byte) (document, error)
	}{
		{"/openapi/v2", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf", &openapi_v2.Document{}, func(json []byte) (document, error) {
			return openapi_v2.ParseDocument(json)
		}},
		{"/openapi/v3/apis/wardle.example.com/v1alpha1", "application/com.github.proto-openapi.spec.v3@v1.0+protobuf", &openapi_v3.Document{}, func(json []byte) (document, error) {
			return openapi_v3.ParseDocument(json)
		}},
	} {
		addDirect("openapi", form.path+" says the same in both forms", func(s *session) {
			asJSON := s.do("GET", form.path, nil, quiet, accept("application/json"))
			asProtobuf := s.do("GET", form.path, nil, quiet, accept(form.media))
			s.say("the same tag: %t", asJSON.header.Get("Etag") == asProtobuf.header.Get("Etag"))
			parsed, err := form.parse(asJSON.body)
			if err != nil {
				s.say("the JSON is no document: %v", err)
				return
			}
			if err := proto.Unmarshal(asProtobuf.body, form.message); err != nil {
				s.say("the protobuf is no document: %v", err)
				return
			}
			s.say("the same: %t", reflect.DeepEqual(said(parsed), said(form.message)))
		})
		for _, coding := range []string{"gzip", "gzip;q=0", "deflate, gzip;q=0.5", "br", "*", "identity, gzip"} {
			for _, media := range []string{"application/json", form.media, "text/html"} {
				addDirect("openapi", form.path+" compressed by "+coding+", as "+media, func(s *session) {
					s.document(form.path, accept(media), header("Accept-Encoding", coding))
				})
			}
		}
	}
	addDirect("openapi", "the index, compressed", func(s *session) { s.document("/openapi/v3", header("Accept-Encoding", "gzip")) })
	addDirect("openapi", "v2 by its tag, compressed", func(s *session) {
		first := s.document("/openapi/v2", header("Accept-Encoding", "gzip"))
		s.do("GET", "/openapi/v2", nil, header("Accept-Encoding", "gzip"), header("If-None-Match", first.header.Get("Etag")), withoutTag)
	})
}

// said is what a message says, whatever the order of its maps.
func said(message interface{ YAMLValue(string) ([]byte, error) }) any {
	text, err := message.YAMLValue("")
	if err != nil {
		panic(err)
	}
	var value any
	if err := yaml.Unmarshal(text, &value); err != nil {
		panic(err)
	}
	return value
}
