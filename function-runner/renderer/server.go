package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"stoa.dev/function-runner/renderer/rendererpb"
)

// After so long without a request, the process gives back its memory. Its next request is no slower for that.
const settled = 500 * time.Millisecond

// renderer answers the calls of the contract.
type renderer struct {
	rendererpb.UnimplementedRendererServer
	// Kustomize has a global schema, so one build runs at a time.
	rendering sync.Mutex
	// Gives back memory, unless another request comes.
	idle *time.Timer
	// Whether an execution of a template does not end.
	spent atomic.Bool
}

// begin waits for the turn of a request. The result ends it.
func (r *renderer) begin() (end func()) {
	r.rendering.Lock()
	if r.idle != nil {
		r.idle.Stop()
	}
	return func() {
		r.idle = time.AfterFunc(settled, debug.FreeOSMemory)
		r.rendering.Unlock()
	}
}

// rendering is the outcome of one request.
type rendering struct {
	documents []*rendererpb.Document
	warnings  []string
	volatile  bool
	origins   []*rendererpb.Origin
	subcharts []*rendererpb.Subchart
	// Whether the files got the values.
	takesValues bool
	problems    []*rendererpb.Problem
	bytes       int
	limit       int
}

// Render renders a folder of a tree.
func (r *renderer) Render(_ context.Context, request *rendererpb.RenderRequest) (*rendererpb.RenderResponse, error) {
	defer r.begin()()
	root, err := os.OpenRoot(request.Tree)
	if err != nil {
		return nil, status.Errorf(codes.FailedPrecondition, "opening the tree: %v", err)
	}
	defer root.Close()
	tree := newTree(root)
	tree.notesEncrypted = request.ReportEncrypted
	tree.replaced = map[string][]byte{}
	for _, file := range request.Replaced {
		tree.replaced[file.Path] = file.Content
	}
	out := &rendering{limit: int(request.MaxBytes)}
	version, err := dispatch(tree, request, out)
	if err != nil {
		out.problems = append(out.problems, problem(request.Path, err))
	}
	if len(out.problems) > 0 {
		out.documents = nil
	}
	return &rendererpb.RenderResponse{
		Documents:   out.documents,
		Warnings:    out.warnings,
		Problems:    out.problems,
		Version:     version,
		Files:       tree.filesRead(),
		Volatile:    out.volatile,
		TakesValues: out.takesValues,
		Origins:     out.origins,
		Subcharts:   out.subcharts,
		Encrypted:   tree.filesEncrypted(),
	}, nil
}

// dispatch calls the library of a tool. Its panics are errors of the input, such as for a list with a missing item.
func dispatch(tree *tree, request *rendererpb.RenderRequest, out *rendering) (version string, err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = fmt.Errorf("%s panicked: %v", version, panicked)
		}
	}()
	switch tool := request.Tool.(type) {
	case *rendererpb.RenderRequest_Kustomize:
		version = kustomizeVersion()
		return version, kustomize(tree, request.Path, tool.Kustomize, out)
	case *rendererpb.RenderRequest_Helm:
		version = helmVersion()
		return version, helm(tree, request.Path, tool.Helm, out)
	default:
		return "", errors.New("the request names no tool")
	}
}

// add appends a document.
func (r *rendering) add(file string, yaml []byte) error {
	r.bytes += len(yaml)
	if r.limit > 0 && r.bytes > r.limit {
		return &wrong{file: file, tooLarge: true, message: "renders to more than a Spec may have; split the stack"}
	}
	r.documents = append(r.documents, &rendererpb.Document{Yaml: yaml, File: file})
	return nil
}

// wrong is an error in a file.
type wrong struct {
	file     string
	line     int
	message  string
	tooLarge bool
}

func (w *wrong) Error() string { return w.message }

// problem converts an error; one without a file is of the folder.
func problem(folder string, err error) *rendererpb.Problem {
	found := &wrong{file: folder, message: err.Error()}
	errors.As(err, &found)
	return &rendererpb.Problem{
		File:     found.file,
		Line:     uint32(found.line),
		Message:  plain(found.message),
		TooLarge: found.tooLarge,
	}
}

// plain is a tool's message with paths from the root of the tree. It is whole: the caller cuts it after it has hidden
// secret values, of which no part would be recognised.
func plain(message string) string {
	message = strings.ReplaceAll(message, mount+"/", "")
	return strings.TrimSpace(strings.ToValidUTF8(message, "�"))
}
