package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// withoutTag leaves a tag out of the transcript, which is each server's own.
func withoutTag(r *request) { r.unshown = append(r.unshown, "If-None-Match") }

// briefOnSuccess leaves out what a successful answer says.
func briefOnSuccess(r *request) { r.briefOnSuccess = true }

func quoted(identity string) string {
	if identity == "" {
		return "anonymous"
	}
	return identity
}

// document asks for a large document, of which only the head is written down.
func (s *session) document(path string, options ...option) *answer {
	a := s.do("GET", path, nil, append(options, quiet)...)
	s.say("GET %s", hash.ReplaceAllString(path, "<hash>"))
	s.say("  %d%s", a.code, headers(a.header))
	if a.code != http.StatusOK {
		s.say("  %s", s.body(a.header.Get("Content-Type"), a.body))
	}
	return a
}

// server asks for something of the server's own, whose version differs.
func (s *session) server(path string) {
	a := s.do("GET", path, nil, quiet)
	s.say("GET %s", path)
	s.say("  %d%s", a.code, headers(a.header))
	if strings.HasPrefix(path, "/version") && a.code == http.StatusOK {
		s.say("  %s", strings.Join(sortedKeys(a.json), " "))
		return
	}
	s.say("  %s", s.body(a.header.Get("Content-Type"), a.body))
}

// verbose asks for a list of checks, each server's own; those that every server has are written down.
func (s *session) verbose(path string) {
	a := s.do("GET", path, nil, quiet)
	s.say("GET %s", path)
	s.say("  %d%s", a.code, headers(a.header))
	for _, line := range strings.Split(string(a.body), "\n") {
		if !strings.HasPrefix(line, "[+]") || strings.HasPrefix(line, "[+]ping") || strings.HasPrefix(line, "[+]shutdown") {
			s.say("  %s", line)
		}
	}
}

var metricName = regexp.MustCompile(`(?m)^# TYPE (\S+) (\S+)$`)

// wanted are the metrics that reference/kubernetes-api.md names.
var wanted = []string{
	"apiserver_request_total", "apiserver_request_duration_seconds", "apiserver_request_sli_duration_seconds",
	"apiserver_response_sizes", "apiserver_current_inflight_requests", "apiserver_longrunning_requests", "apiserver_watch_events_total",
	"apiserver_watch_events_sizes", "apiserver_watch_list_duration_seconds", "field_validation_request_duration_seconds", "authentication_attempts", "authenticated_user_requests",
	"authentication_duration_seconds", "authorization_attempts_total", "authorization_duration_seconds", "process_cpu_seconds_total",
	"process_resident_memory_bytes", "process_start_time_seconds", "process_open_fds",
}

var metricLabels = regexp.MustCompile(`(?m)^([a-z_]+)\{([^}]*)\}`)

func (s *session) metrics() {
	a := s.do("GET", "/metrics", nil, quiet)
	s.say("%d%s", a.code, headers(a.header))
	kinds := map[string]string{}
	for _, match := range metricName.FindAllStringSubmatch(string(a.body), -1) {
		kinds[match[1]] = match[2]
	}
	labels := map[string]map[string]bool{}
	for _, match := range metricLabels.FindAllStringSubmatch(string(a.body), -1) {
		name := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(match[1], "_bucket"), "_sum"), "_count")
		if labels[name] == nil {
			labels[name] = map[string]bool{}
		}
		for _, pair := range strings.Split(match[2], `",`) {
			label, _, _ := strings.Cut(pair, "=")
			labels[name][label] = true
		}
	}
	for _, name := range wanted {
		s.say("%s %s %v", name, kinds[name], sortedKeys(labels[name]))
	}
}

// openapi writes down the operations of a document: their actions, kinds, parameters, bodies and answers.
func (s *session) openapi(document map[string]any) {
	paths, _ := document["paths"].(map[string]any)
	for _, path := range sortedKeys(paths) {
		if !strings.Contains(path, "v1alpha1") {
			continue
		}
		item, _ := paths[path].(map[string]any)
		for _, method := range sortedKeys(item) {
			if method == "parameters" {
				s.say("%s parameters %s", path, parameters(item[method]))
				continue
			}
			operation, _ := item[method].(map[string]any)
			responses, _ := operation["responses"].(map[string]any)
			s.say("%s %s %v %v", method, path, operation["x-kubernetes-action"], compact(operation["x-kubernetes-group-version-kind"]))
			s.say("  %v; %v; %v", operation["operationId"], operation["tags"], operation["description"])
			s.say("  takes %s %s", parameters(operation["parameters"]), mediaTypes(operation["requestBody"], operation["consumes"]))
			for _, code := range sortedKeys(responses) {
				s.say("  %s %s", code, mediaTypes(responses[code], operation["produces"]))
			}
		}
	}
}

func compact(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func parameters(value any) string {
	list, _ := value.([]any)
	var texts []string
	for _, parameter := range list {
		p, _ := parameter.(map[string]any)
		if reference, ok := p["$ref"].(string); ok {
			texts = append(texts, strings.SplitN(reference[strings.LastIndex(reference, "/")+1:], "-", 2)[0])
			continue
		}
		kind := p["type"]
		if schema, ok := p["schema"].(map[string]any); ok && kind == nil {
			kind = schema["type"]
			if schema["uniqueItems"] != nil {
				kind = fmt.Sprint(kind, " unique")
			}
		}
		texts = append(texts, fmt.Sprintf("%v:%v", p["name"], kind))
	}
	slices.Sort(texts)
	return strings.Join(texts, " ")
}

func mediaTypes(value, listed any) string {
	holder, _ := value.(map[string]any)
	content, _ := holder["content"].(map[string]any)
	if content == nil {
		return compact(holder["schema"]) + " " + compact(listed)
	}
	var texts []string
	for _, media := range sortedKeys(content) {
		inner, _ := content[media].(map[string]any)
		texts = append(texts, media+" "+compact(inner["schema"]))
	}
	return strings.Join(texts, ", ")
}

// schemas writes down the schemas of a document without their descriptions.
func (s *session) schemas(value any) {
	schemas, _ := value.(map[string]any)
	for _, name := range sortedKeys(schemas) {
		if strings.Contains(name, "v1beta1") {
			continue
		}
		s.say("%s %s", name, compact(undescribed(schemas[name])))
	}
}

func undescribed(value any) any {
	switch value := value.(type) {
	case map[string]any:
		copied := map[string]any{}
		for key, inner := range value {
			if _, isText := inner.(string); key == "description" && isText {
				continue
			}
			copied[key] = undescribed(inner)
		}
		return copied
	case []any:
		copied := make([]any, len(value))
		for i := range value {
			copied[i] = undescribed(value[i])
		}
		return copied
	}
	return value
}
