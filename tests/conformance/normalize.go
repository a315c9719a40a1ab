package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"sigs.k8s.io/yaml"
)

// shownHeaders are the headers that clients act on; presence says only that it is there.
var (
	shownHeaders = []string{
		"Accept-Ranges", "Allow", "Cache-Control", "Connection", "Content-Encoding", "Content-Type", "Location", "Retry-After", "Upgrade", "Vary",
		"Warning", "Www-Authenticate", "X-Content-Type-Options", "Sec-Websocket-Protocol", "Access-Control-Allow-Origin",
		"Access-Control-Allow-Methods", "Access-Control-Allow-Headers", "Access-Control-Allow-Credentials", "Strict-Transport-Security",
	}
	presence = []string{"Audit-Id", "Etag", "Expires", "Last-Modified", "Process-Start-Time-Unix"}
)

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

func headers(h http.Header) string {
	var out strings.Builder
	for _, name := range shownHeaders {
		values := slices.Clone(h[name])
		slices.Sort(values)
		for _, value := range values {
			if deprecated.MatchString(value) {
				continue
			}
			fmt.Fprintf(&out, " %s: %s;", name, hash.ReplaceAllString(value, "<hash>"))
		}
	}
	for _, name := range presence {
		if len(h[name]) > 0 {
			fmt.Fprintf(&out, " %s;", name)
		}
	}
	return out.String()
}

var (
	age       = regexp.MustCompile(`^\d+s$`)
	hash      = regexp.MustCompile(`[0-9A-F]{128}`)
	uuid      = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	timestamp = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	versions  = regexp.MustCompile(`(resource version: )\d+`)
	current   = regexp.MustCompile(`(, current: )\d+`)
	tooOld    = regexp.MustCompile(`(too old resource version: (?:\d+|<version>) )\(\d+\)`)
	// The reference's types say that they are deprecated, which is theirs alone.
	deprecated = regexp.MustCompile(`is deprecated in v1\.3\+`)
	// The subject speaks no protobuf, as the project's scope has it.
	protobuf = regexp.MustCompile(`, ?application/vnd\.kubernetes\.protobuf(;stream=watch)?`)
)

var rewrites = []struct {
	pattern *regexp.Regexp
	text    string
}{
	// What Go's packages and registries are called, and whether a kind is one of the server's at all.
	{regexp.MustCompile(`\(\*\w+\.Scale\)`), "(*<package>.Scale)"},
	{regexp.MustCompile(`converting \([\w.]+\) to \([\w.]+\): unknown conversion`), "<another kind>"},
	{regexp.MustCompile(`no kind "\w+" is registered for version "[\w./]+" in scheme "[\w./:]+"`), "<another kind>"},
	// Objects are shown as they are encoded, in an order of fields that is each encoder's own.
	{regexp.MustCompile(`(patch: Invalid value: |^Invalid value: )"\{\\".*\}"(: )`), "$1<patched>$2"},
	// The reference's key begins with its group twice, as its storage has a prefix of that name.
	{regexp.MustCompile(`/registry/wardle.example.com/wardle.example.com/`), "/registry/wardle.example.com/"},
	// What stands in for the storage in a dry run has no prefix.
	{regexp.MustCompile(`(Key: )(/wardle.example.com/)`), "$1/registry$2"},
	{regexp.MustCompile(`(Web_|generated-)[a-z0-9]{5}`), "$1<suffix>"},
	{regexp.MustCompile(`(0\.0\.0\.0/0\D*:)\d+`), "$1<port>"},
	{regexp.MustCompile(`in record \(\d+\)`), "in record (<version>)"},
	{regexp.MustCompile(`(\\"resourceVersion\\":\\")\d+`), "$1<version>"},
}

// isOthers says whether an element of a document is about v1beta1, which only the reference serves, or about the group of
// trawlers, which the sample-apiserver does not have.
func isOthers(value any) bool {
	object, _ := value.(map[string]any)
	metadata, _ := object["metadata"].(map[string]any)
	if object["name"] == "fleet.example.com" || metadata["name"] == "fleet.example.com" {
		return true
	}
	return object["version"] == "v1beta1" || object["groupVersion"] == "wardle.example.com/v1beta1"
}

// isOfEither says whether a field of an object, or of a list's metadata, is one that custom resources have and typed kinds do not, or the
// other way round. In the key is the field whose value, or a part of whose value, the object is.
func isOfEither(key, name string, value any) bool {
	switch name {
	case "apiVersion", "kind":
		return key == "items"
	case "continue":
		return value == ""
	case "status":
		_, isObject := value.(map[string]any)
		return isObject
	}
	return false
}

// body is an answer's body, everything in it masked that differs from run to run.
func (s *session) body(contentType string, content []byte) string {
	var value any
	if strings.HasPrefix(contentType, "application/yaml") {
		if err := yaml.Unmarshal(content, &value); err != nil {
			return "no YAML: " + string(content)
		}
	} else if err := json.Unmarshal(content, &value); err != nil {
		text := s.text(strings.TrimRight(string(content), "\n"))
		if strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }) {
			// Protobuf, which nobody reads.
			return strconv.QuoteToASCII(text)
		}
		return text
	}
	encoded := &strings.Builder{}
	encoder := json.NewEncoder(encoded)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(s.value("", value)); err != nil {
		panic(err)
	}
	return strings.TrimRight(encoded.String(), "\n")
}

func (s *session) value(key string, value any) any {
	switch value := value.(type) {
	case map[string]any:
		// Each server has paths of its own.
		if paths, ok := value["paths"].([]any); ok && len(value) == 1 && len(paths) > 0 {
			return map[string]any{"paths": "<index>"}
		}
		masked := map[string]any{}
		for name, inner := range value {
			// The reference's strategies count no generations; those of kube-apiserver's own kinds do.
			if name == "managedFields" && !s.full || name == "generation" {
				continue
			}
			if s.custom && isOfEither(key, name, inner) && !(s.withStatus && name == "status") {
				continue
			}
			if name == "preferredVersion" && isOthers(inner) {
				inner = map[string]any{"groupVersion": groupVersion, "version": "v1alpha1"}
			}
			// Whether a part is owned for itself differs: of a custom resource a map, which a typed kind's struct is not.
			if s.custom && name == "." && strings.HasPrefix(key, "f:") {
				continue
			}
			masked[name] = s.value(name, inner)
		}
		return masked
	case []any:
		masked := []any{}
		for _, inner := range value {
			// What controllers own of the status comes when it comes.
			if entry, _ := inner.(map[string]any); s.custom && !s.withStatus && key == "managedFields" && entry["subresource"] == "status" {
				continue
			}
			if !isOthers(inner) {
				masked = append(masked, s.value(key, inner))
			}
		}
		if key == "managedFields" && s.unordered {
			slices.SortFunc(masked, func(a, b any) int { return bytes.Compare(encode(a), encode(b)) })
		}
		return masked
	case string:
		switch key {
		case "resourceVersion":
			if value != "" {
				return "<version>"
			}
		case "continue":
			if value != "" {
				return "<token>"
			}
		case "cells":
			if age.MatchString(value) {
				return "<age>"
			}
		}
		return s.text(value)
	}
	return value
}

func (s *session) text(text string) string {
	text = s.masked(text)
	text = uuid.ReplaceAllString(text, "<uid>")
	text = timestamp.ReplaceAllString(text, "<time>")
	text = hash.ReplaceAllString(text, "<hash>")
	text = protobuf.ReplaceAllString(text, "")
	text = versions.ReplaceAllString(text, "$1<version>")
	text = tooOld.ReplaceAllString(text, "$1(<version>)")
	for _, rewrite := range rewrites {
		text = rewrite.pattern.ReplaceAllString(text, rewrite.text)
	}
	return current.ReplaceAllString(text, "$1<version>")
}
