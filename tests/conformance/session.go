package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	groupVersion = "wardle.example.com/v1alpha1"
	root         = "/apis/" + groupVersion
	fischers     = root + "/fischers"
)

// session is one check's conversation with one server. What is sent with do is in the transcript.
type session struct {
	bed     *bed
	base    string
	mode    string
	number  int
	subject bool
	// as is the certificate that requests show; empty for none.
	as string
	// full keeps managedFields in the transcript, which other checks are not about.
	full bool
	// unordered sorts managedFields, whose order depends on when a second ended.
	unordered bool
	// custom keeps out of the transcript what custom resources have and typed kinds do not, and the other way round: what
	// items of lists are and that no page follows, and the status, of which nobody writes that of the former.
	custom bool

	// withStatus keeps the status in it even so.
	withStatus bool

	// bookmarks counts those that are not in the transcript.
	bookmarks int

	made  bool
	mu    sync.Mutex
	out   strings.Builder
	masks []mask
}

type mask struct{ from, to string }

// mask replaces a text wherever it stands in the transcript; later masks see the result of earlier ones.
func (s *session) mask(from, to string) {
	if from != "" {
		s.masks = append(s.masks, mask{from, to})
	}
}

func (s *session) masked(text string) string {
	for _, m := range s.masks {
		text = strings.ReplaceAll(text, m.from, m.to)
	}
	return text
}

func (s *session) transcript() string { return s.out.String() }

// say writes a line into the transcript.
func (s *session) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out.WriteString(s.masked(fmt.Sprintf(format, args...)) + "\n")
}

// ns is a namespace of this check's own.
func (s *session) ns() string {
	name := fmt.Sprintf("%s-%d", s.bed.run, s.number)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.made {
		s.made = true
		// The other server's turn finds it made; in every other way a failure shows in the answers.
		_ = s.bed.namespace(name)
	}
	return name
}

// name is a name for a cluster-scoped object of this check's own.
func (s *session) name(suffix string) string {
	return fmt.Sprintf("%s-%d-%s", s.bed.run, s.number, suffix)
}

func (s *session) flunders() string           { return root + "/namespaces/" + s.ns() + "/flunders" }
func (s *session) flunder(name string) string { return s.flunders() + "/" + name }

// request is what is asked; the zero value asks for nothing special.
type request struct {
	header  http.Header
	as      *string
	http1   bool
	timeout time.Duration
	quiet   bool
	// brief leaves the body out of the transcript, headers too.
	brief bool
	// headOnSuccess leaves out the body of a success.
	headOnSuccess bool
	// briefOnSuccess does so when the answer is a success.
	briefOnSuccess bool
	// unshown are headers that are each server's own.
	unshown []string
	// masked are parts of the query that are each server's own.
	masked []string
	// unknownLength sends a body without saying how long it is.
	unknownLength bool
	// unshownBody leaves the request's body out of the transcript, which has versions and uids in it.
	unshownBody bool
}

type option func(*request)

func header(name, value string) option {
	return func(r *request) {
		r.header[http.CanonicalHeaderKey(name)] = append(r.header[http.CanonicalHeaderKey(name)], value)
	}
}

func accept(value string) option      { return header("Accept", value) }
func contentType(value string) option { return header("Content-Type", value) }
func as(identity string) option       { return func(r *request) { r.as = &identity } }
func quiet(r *request)                { r.quiet = true }
func brief(r *request)                { r.brief = true }
func headOnSuccess(r *request)        { r.headOnSuccess = true }
func http1(r *request)                { r.http1 = true }
func unknownLength(r *request)        { r.unknownLength = true }

// answer is what came back, as it came.
type answer struct {
	code   int
	header http.Header
	body   []byte
	json   map[string]any
}

func (a *answer) at(path ...string) any {
	var value any = a.json
	for _, key := range path {
		object, ok := value.(map[string]any)
		if !ok {
			return nil
		}
		value = object[key]
	}
	return value
}

func (a *answer) text(path ...string) string {
	text, _ := a.at(path...).(string)
	return text
}

func (a *answer) rv() string  { return a.text("metadata", "resourceVersion") }
func (a *answer) uid() string { return a.text("metadata", "uid") }

// do sends a request and writes it and its answer into the transcript.
func (s *session) do(method, path string, body any, options ...option) *answer {
	r := &request{header: http.Header{}, timeout: 90 * time.Second}
	for _, option := range options {
		option(r)
	}
	response, end := s.send(method, path, body, r)
	defer end()
	bytes, err := io.ReadAll(response.Body)
	a := &answer{code: response.StatusCode, header: response.Header, body: bytes}
	if err != nil {
		s.say("%s %s: the body broke off", method, path)
		return a
	}
	_ = json.Unmarshal(bytes, &a.json)
	if !r.quiet {
		s.record(method, path, body, r, a)
	}
	return a
}

// setup is do, without a trace; it must succeed.
func (s *session) setup(method, path string, body any, options ...option) *answer {
	a := s.do(method, path, body, append(options, quiet)...)
	if a.code > 299 {
		panic(s.masked(fmt.Sprintf("%s %s: %d %s", method, path, a.code, a.body)))
	}
	return a
}

func (s *session) send(method, path string, body any, r *request) (*http.Response, func()) {
	identity := s.as
	if r.as != nil {
		identity = *r.as
	}
	client, err := s.bed.client(identity, r.http1)
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), r.timeout)
	var reader io.Reader
	if body != nil {
		reader = bytes.NewReader(encode(body))
	}
	if r.unknownLength {
		reader = io.MultiReader(reader)
	}
	request, err := http.NewRequestWithContext(ctx, method, s.base+path, reader)
	if err != nil {
		panic(err)
	}
	request.Header.Set("User-Agent", "conformance/v1")
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	for name, values := range r.header {
		request.Header[name] = values
		if len(values) == 1 && values[0] == "" {
			delete(request.Header, name)
		}
	}
	response, err := client.Do(request)
	if err != nil {
		cancel()
		panic(s.masked(err.Error()))
	}
	if s.custom {
		// Where it passes an answer on, kube-apiserver says for itself what is said already.
		for name, values := range response.Header {
			response.Header[name] = slices.Compact(values)
		}
	}
	return response, func() { response.Body.Close(); cancel() }
}

// encode turns a value into JSON; texts are sent as they are.
func encode(body any) []byte {
	switch body := body.(type) {
	case string:
		return []byte(body)
	case []byte:
		return body
	}
	bytes, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	return bytes
}

// shown is a request's body as the transcript has it.
func (s *session) shown(body any) string {
	if body == nil {
		return ""
	}
	text := s.masked(string(encode(body)))
	if len(text) > 400 {
		text = fmt.Sprintf("%s… (%d bytes)", text[:100], len(text))
	}
	return " " + strings.ReplaceAll(text, "\n", "⏎")
}

func (s *session) record(method, path string, body any, r *request, a *answer) {
	path = hash.ReplaceAllString(path, "<hash>")
	for _, part := range r.masked {
		path = strings.ReplaceAll(path, part, "<masked>")
	}
	var said strings.Builder
	fmt.Fprintf(&said, "%s %s", method, path)
	for _, name := range sortedKeys(r.header) {
		if slices.Contains(r.unshown, name) {
			continue
		}
		fmt.Fprintf(&said, " [%s: %s]", name, strings.Join(r.header[name], " | "))
	}
	if r.as != nil {
		fmt.Fprintf(&said, " as %q", *r.as)
	}
	if !r.unshownBody {
		said.WriteString(s.shown(body))
	}
	s.say("%s", said.String())
	if r.brief || (r.briefOnSuccess && a.code < 300) {
		s.say("  %d", a.code)
		return
	}
	s.say("  %d%s", a.code, headers(a.header))
	if text := s.body(a.header.Get("Content-Type"), a.body); text != "" && !(r.headOnSuccess && a.code < 300) {
		s.say("  %s", text)
	}
}

// event is a line of a watch.
type event struct {
	kind   string
	object map[string]any
}

// watch reads a watch to its end, or until enough says so, and writes the events down. live is called when the
// answer's head is there.
func (s *session) watch(path string, live func(), enough func([]event) bool, options ...option) []event {
	r := &request{header: http.Header{}, timeout: 30 * time.Second}
	for _, option := range options {
		option(r)
	}
	response, end := s.send("GET", path, nil, r)
	defer end()
	s.record("GET", path, nil, r, &answer{code: response.StatusCode, header: response.Header})
	if response.StatusCode != http.StatusOK {
		bytes, _ := io.ReadAll(response.Body)
		s.say("  %s", s.body(response.Header.Get("Content-Type"), bytes))
		return nil
	}
	if live != nil {
		live()
	}
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 16<<20)
	var events []event
	for lines.Scan() {
		var frame struct {
			Type   string         `json:"type"`
			Object map[string]any `json:"object"`
		}
		if err := json.Unmarshal(lines.Bytes(), &frame); err != nil {
			s.say("  no frame: %s", lines.Text())
			continue
		}
		if frame.Type == "BOOKMARK" && !bytes.Contains(lines.Bytes(), []byte("k8s.io/initial-events-end")) {
			// How many come, and when, is up to the server.
			s.bookmarks++
			continue
		}
		events = append(events, event{frame.Type, frame.Object})
		s.say("  %s", s.body("application/json", encode(map[string]any{"type": frame.Type, "object": frame.Object})))
		if enough != nil && enough(events) {
			return events
		}
	}
	s.say("  end")
	return events
}

// after is enough of that many events.
func after(count int) func([]event) bool {
	return func(events []event) bool { return len(events) >= count }
}

// object is a flunder.
func object(name string, more ...any) map[string]any {
	o := map[string]any{
		"apiVersion": groupVersion, "kind": "Flunder",
		"metadata": map[string]any{"name": name},
	}
	return with(o, more...)
}

// fischer is a fischer.
func fischer(name string, more ...any) map[string]any {
	return with(map[string]any{"apiVersion": groupVersion, "kind": "Fischer", "metadata": map[string]any{"name": name}}, more...)
}

// with sets fields of an object: path, value, path, value, …; a nil value removes.
func with(o map[string]any, more ...any) map[string]any {
	copied := map[string]any{}
	if err := json.Unmarshal(encode(o), &copied); err != nil {
		panic(err)
	}
	for i := 0; i < len(more); i += 2 {
		path := strings.Split(more[i].(string), ".")
		at := copied
		for _, key := range path[:len(path)-1] {
			next, ok := at[key].(map[string]any)
			if !ok {
				next = map[string]any{}
				at[key] = next
			}
			at = next
		}
		last := path[len(path)-1]
		if more[i+1] == nil {
			delete(at, last)
		} else {
			at[last] = more[i+1]
		}
	}
	return copied
}

// create makes a flunder without a trace.
func (s *session) create(name string, more ...any) *answer {
	return s.setup("POST", s.flunders(), object(name, more...))
}
