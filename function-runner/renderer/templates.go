package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"text/template"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"stoa.dev/function-runner/renderer/rendererpb"
)

// dataType is the data of Kalypso's templates. The Go types and the order are those of its struct, since templates see them.
type dataType struct {
	DeploymentTargetName string
	Namespace            string
	Environment          string
	Workspace            string
	Workload             string
	Labels               map[string]string
	Manifests            map[string]string
	ClusterType          string
	ConfigData           map[string]interface{}
}

// The most bytes of a text that a message repeats.
const repeated = 200

// ExecuteTemplates executes templates on data, one after another.
func (r *renderer) ExecuteTemplates(_ context.Context, request *rendererpb.TemplatesRequest) (*rendererpb.TemplatesResponse, error) {
	defer r.begin()()
	if r.spent.Load() {
		return nil, status.Error(codes.FailedPrecondition, "an execution before does not end; start the renderer again")
	}
	for at, execution := range request.Executions {
		if int(execution.Template) >= len(request.Templates) || int(execution.Data) >= len(request.Data) {
			return nil, status.Errorf(codes.OutOfRange, "execution %d names a template or data that the request lacks", at)
		}
	}
	run := newTemplating(request)
	results, done := make(chan *rendererpb.Executed), make(chan struct{})
	defer close(done)
	go run.all(results, done)
	response := &rendererpb.TemplatesResponse{}
	limit := time.Duration(request.Milliseconds) * time.Millisecond
	bytes := 0
	for range request.Executions {
		select {
		case executed := <-results:
			response.Executed = append(response.Executed, executed)
			for _, text := range executed.Manifests {
				bytes += len(text)
			}
		case <-time.After(limit):
			// Nothing ends an execution from outside. It ends at its next output, or with the process.
			run.isStopped.Store(true)
			r.spent.Store(true)
			message := fmt.Sprintf("took more than %d ms; shorten its loops", request.Milliseconds)
			problem := &rendererpb.TemplateProblem{Message: message, TookTooLong: true}
			response.Executed = append(response.Executed, failed(problem))
			response.IsSpent = true
		}
		if response.IsSpent || bytes > int(request.MaxResponseBytes) {
			break
		}
	}
	return response, nil
}

// templating is the execution of the templates of one request.
type templating struct {
	request   *rendererpb.TemplatesRequest
	functions *functions
	// The parsed texts of each template, once one of its executions began.
	parsed [][]parsedText
	// Whether an execution took too long.
	isStopped atomic.Bool
}

// parsedText is a text of a template, or why it is none.
type parsedText struct {
	template *template.Template
	err      error
}

func newTemplating(request *rendererpb.TemplatesRequest) *templating {
	return &templating{
		request:   request,
		functions: newFunctions(int(request.MaxBytes)),
		parsed:    make([][]parsedText, len(request.Templates)),
	}
}

func (t *templating) all(results chan<- *rendererpb.Executed, done <-chan struct{}) {
	for _, execution := range t.request.Executions {
		select {
		case results <- t.one(execution):
		case <-done:
			return
		}
	}
}

// one executes a template. Each execution has data of its own, since functions such as set change it.
func (t *templating) one(execution *rendererpb.Execution) *rendererpb.Executed {
	data, err := dataOf(t.request.Data[execution.Data])
	if err != nil {
		return failed(&rendererpb.TemplateProblem{Message: "the config data is no JSON object: " + err.Error()})
	}
	t.functions.reset()
	executed := &rendererpb.Executed{}
	left := int(t.request.MaxBytes)
	for at, text := range t.texts(int(execution.Template)) {
		result, err := t.render(text, data, left)
		if err != nil {
			problem := &rendererpb.TemplateProblem{Manifest: uint32(at), Line: templateLine(err), Message: plain(err.Error())}
			problem.TooLarge = errors.Is(err, errTooLarge)
			executed = failed(problem)
			break
		}
		left -= len(result)
		if result != "" {
			executed.Manifests = append(executed.Manifests, result)
		}
	}
	executed.Volatile = t.functions.used()
	return executed
}

func failed(problem *rendererpb.TemplateProblem) *rendererpb.Executed {
	return &rendererpb.Executed{Problem: problem}
}

func (t *templating) texts(of int) []parsedText {
	if t.parsed[of] == nil {
		for _, manifest := range t.request.Templates[of].Manifests {
			parsed, err := t.parse(manifest)
			t.parsed[of] = append(t.parsed[of], parsedText{parsed, err})
		}
	}
	return t.parsed[of]
}

// parse parses a text as Kalypso does, without options.
func (t *templating) parse(text string) (*template.Template, error) {
	return template.New("template").Funcs(t.functions.all).Parse(text)
}

// render executes a text, and its result again while that is a template.
func (t *templating) render(text parsedText, data *dataType, limit int) (string, error) {
	for pass := 1; ; pass++ {
		if text.err != nil {
			return "", text.err
		}
		out := &boundedWriter{limit: limit, isStopped: &t.isStopped}
		if err := text.template.Execute(out, data); err != nil {
			return "", err
		}
		result := out.buffer.String()
		if !strings.Contains(result, "{{") {
			return result, nil
		}
		if pass >= int(t.request.MaxPasses) {
			return "", fmt.Errorf("the result is still a template after %d passes: %q", pass, shortenedText(result[strings.Index(result, "{{"):]))
		}
		again, err := t.parse(result)
		if err != nil {
			err = fmt.Errorf("the result is a template, and no valid one: %w", err)
		}
		text = parsedText{again, err}
	}
}

func shortenedText(text string) string {
	if len(text) > repeated {
		return strings.ToValidUTF8(text[:repeated], "") + "…"
	}
	return text
}

var errTooLarge = errors.New("renders to more text than a template may")

// boundedWriter fails when there is too much, or when the execution took too long.
type boundedWriter struct {
	buffer    bytes.Buffer
	limit     int
	isStopped *atomic.Bool
}

func (w *boundedWriter) Write(part []byte) (int, error) {
	if w.buffer.Len()+len(part) > w.limit {
		return 0, errTooLarge
	}
	if w.isStopped.Load() {
		return 0, errors.New("took too long")
	}
	return w.buffer.Write(part)
}

// dataOf converts data. Integers are ints, as they are after Kalypso's decoding of YAML, and null stays apart from a missing key.
func dataOf(given *rendererpb.TemplateData) (*dataType, error) {
	data := &dataType{
		DeploymentTargetName: given.DeploymentTargetName,
		Namespace:            given.Namespace,
		Environment:          given.Environment,
		Workspace:            given.Workspace,
		Workload:             given.Workload,
		Labels:               given.Labels,
		Manifests:            given.Manifests,
		ClusterType:          given.ClusterType,
	}
	var err error
	data.ConfigData, err = decodeConfig(given.ConfigData)
	return data, err
}

var position = regexp.MustCompile(`^(?:the result is a template, and no valid one: )?template: template:(\d+):`)

// templateLine is the line in an error of the library.
func templateLine(err error) uint32 {
	found := position.FindStringSubmatch(err.Error())
	if found == nil || strings.HasPrefix(err.Error(), "the result") {
		return 0
	}
	line, _ := strconv.ParseUint(found[1], 10, 32)
	return uint32(line)
}
