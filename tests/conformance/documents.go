package main

import (
	"encoding/json"
	"net/http"
	"regexp"
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

var (
	metricName = regexp.MustCompile(`(?m)^# TYPE (\S+) (\S+)$`)
	metricHelp = regexp.MustCompile(`(?m)^# HELP (\S+) (.*)$`)
)

// wanted are the metrics that reference/kubernetes-api.md names, and the others that any server of upstream's has after a few requests.
var wanted = []string{
	"apiserver_request_total", "apiserver_request_duration_seconds", "apiserver_request_sli_duration_seconds",
	"apiserver_response_sizes", "apiserver_current_inflight_requests", "apiserver_longrunning_requests", "apiserver_watch_events_total",
	"apiserver_watch_events_sizes", "apiserver_watch_list_duration_seconds", "field_validation_request_duration_seconds", "authentication_attempts", "authenticated_user_requests",
	"authentication_duration_seconds", "authorization_attempts_total", "authorization_duration_seconds", "process_cpu_seconds_total",
	"process_resident_memory_bytes", "process_start_time_seconds", "process_open_fds",
	"apiserver_request_body_size_bytes", "apiserver_request_filter_duration_seconds", "apiserver_request_timestamp_comparison_time",
	"apiserver_tls_handshake_errors_total", "apiserver_audit_event_total", "apiserver_audit_level_total", "apiserver_audit_requests_rejected_total",
	"apiserver_admission_controller_admission_duration_seconds", "apiserver_admission_step_admission_duration_seconds",
	"apiserver_cache_list_total", "apiserver_cache_list_fetched_objects_total", "apiserver_cache_list_returned_objects_total",
	"apiserver_init_events_total", "apiserver_watch_cache_events_received_total", "apiserver_watch_cache_events_dispatched_total",
	"apiserver_watch_cache_initializations_total", "apiserver_watch_cache_read_wait_seconds", "apiserver_watch_cache_consistent_read_total",
	"apiserver_watch_cache_resource_version", "watch_cache_capacity",
	"apiserver_storage_list_total", "apiserver_storage_list_fetched_objects_total", "apiserver_storage_list_evaluated_objects_total",
	"apiserver_storage_list_returned_objects_total", "apiserver_storage_objects", "apiserver_resource_objects", "apiserver_resource_size_estimate_bytes",
	"apiserver_client_certificate_expiration_seconds", "apiserver_delegated_authz_request_total", "apiserver_delegated_authz_request_duration_seconds",
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
	helps := map[string]string{}
	for _, match := range metricHelp.FindAllStringSubmatch(string(a.body), -1) {
		helps[match[1]] = match[2]
	}
	for _, name := range wanted {
		s.say("%s: %s", name, helps[name])
	}
}

func compact(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(text)
}
