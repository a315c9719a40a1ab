package clientgo

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// The label that tells one test's objects from another's.
	testLabel = "stoa.dev/client-go-test"
	// Counts a test's own writes to an object; what controllers write leaves it alone.
	stepAnnotation = "stoa.dev/client-go-step"
	// How long a test waits for what should come within a second.
	patience = 30 * time.Second
)

// A kind whose objects need nothing else to exist.
var backends = schema.GroupVersionResource{Group: "platform.stoa.dev", Version: "v1alpha1", Resource: "backends"}

// bed is what one test works with.
type bed struct {
	t      *testing.T
	ctx    context.Context
	id     string
	client dynamic.ResourceInterface
	// How many numbers objects of churn have taken.
	churned int
}

// config reads the kubeconfig that the environment names.
func config(t *testing.T) *rest.Config {
	t.Helper()
	path := os.Getenv("STOA_TEST_KUBECONFIG")
	if path == "" {
		t.Fatal("STOA_TEST_KUBECONFIG has to name the kubeconfig of a running server")
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	// The tests ask for more than client-go's default of 5 requests a second.
	config.QPS, config.Burst = 1000, 1000
	return config
}

// newBed returns an empty bed, whose objects go when the test ends.
func newBed(t *testing.T) *bed {
	t.Helper()
	client, err := dynamic.NewForConfig(config(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	b := &bed{t: t, ctx: ctx, id: fmt.Sprintf("cg-%08x", rand.Uint32()), client: client.Resource(backends)}
	t.Cleanup(func() {
		defer cancel()
		err := b.client.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: b.selector()})
		if err != nil {
			t.Errorf("removing the test's objects: %v", err)
		}
	})
	return b
}

func (b *bed) selector() string { return testLabel + "=" + b.id }

func (b *bed) name(i int) string { return fmt.Sprintf("%s-%04d", b.id, i) }

// create makes object number i, at step 0.
func (b *bed) create(i int) *unstructured.Unstructured {
	b.t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": backends.GroupVersion().String(),
		"kind":       "Backend",
		"metadata": map[string]any{
			"name":        b.name(i),
			"labels":      map[string]any{testLabel: b.id},
			"annotations": map[string]any{stepAnnotation: "0"},
		},
		"spec": map[string]any{"type": "Local", "local": map[string]any{"directory": b.id}},
	}}
	created, err := b.client.Create(b.ctx, object, metav1.CreateOptions{})
	if err != nil {
		b.t.Errorf("create %s: %v", b.name(i), err)
		return object
	}
	return created
}

// step moves object number i on to the given step.
func (b *bed) step(i, step int) {
	b.t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:"%d"}}}`, stepAnnotation, step)
	_, err := b.client.Patch(b.ctx, b.name(i), "application/merge-patch+json", []byte(patch), metav1.PatchOptions{})
	if err != nil {
		b.t.Errorf("patch %s: %v", b.name(i), err)
	}
}

func (b *bed) delete(i int) {
	b.t.Helper()
	if err := b.client.Delete(b.ctx, b.name(i), metav1.DeleteOptions{}); err != nil {
		b.t.Errorf("delete %s: %v", b.name(i), err)
	}
}

// wire sits below a client and sees, cuts and answers its watch requests.
type wire struct {
	next http.RoundTripper

	mu      sync.Mutex
	watches []string // queries of watch requests, in order
	lists   int
	open    []*cuttable
	// Answers the next watch request instead of the server, once.
	answer func(*http.Request) *http.Response
	// Keeps requests until it is closed.
	held chan struct{}
}

// wired returns a copy of the config whose requests go over the wire.
func wired(config *rest.Config) (*rest.Config, *wire) {
	w := &wire{}
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		w.next = next
		return w
	})
	return config, w
}

func (w *wire) RoundTrip(request *http.Request) (*http.Response, error) {
	w.mu.Lock()
	held := w.held
	w.mu.Unlock()
	if held != nil {
		select {
		case <-held:
		case <-request.Context().Done():
			return nil, request.Context().Err()
		}
	}
	query := request.URL.Query()
	if query.Get("watch") != "true" && query.Get("watch") != "1" {
		if request.Method == http.MethodGet {
			w.mu.Lock()
			w.lists++
			w.mu.Unlock()
		}
		return w.next.RoundTrip(request)
	}
	w.mu.Lock()
	w.watches = append(w.watches, request.URL.RawQuery)
	answer := w.answer
	w.answer = nil
	w.mu.Unlock()
	if answer != nil {
		return answer(request), nil
	}
	response, err := w.next.RoundTrip(request)
	if err != nil || response.StatusCode != http.StatusOK {
		return response, err
	}
	body := &cuttable{ReadCloser: response.Body}
	response.Body = body
	w.mu.Lock()
	w.open = append(w.open, body)
	w.mu.Unlock()
	return response, nil
}

// cut ends every open watch as a lost connection does.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, body := range w.open {
		body.Close()
	}
	w.open = nil
}

// hold ends every open watch, and keeps what is asked from then on until it is let go.
func (w *wire) hold() (release func()) {
	held := make(chan struct{})
	w.mu.Lock()
	w.held = held
	w.mu.Unlock()
	w.cut()
	return func() {
		w.mu.Lock()
		w.held = nil
		w.mu.Unlock()
		close(held)
	}
}

// expire ends every open watch and answers the next one as one from a version that is no longer known: the server
// keeps far more history than a test makes.
func (w *wire) expire() {
	w.mu.Lock()
	w.answer = func(request *http.Request) *http.Response {
		body := `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure",` +
			`"message":"too old resource version","reason":"Expired","code":410}}` + "\n"
		return &http.Response{
			StatusCode: http.StatusOK,
			Proto:      "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header:  http.Header{"Content-Type": {"application/json"}},
			Body:    io.NopCloser(bytes.NewBufferString(body)),
			Request: request,
		}
	}
	w.mu.Unlock()
	w.cut()
}

func (w *wire) seen() (watches []string, lists int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.watches...), w.lists
}

// cuttable ends with an orderly EOF once it is closed, whatever the connection does then.
type cuttable struct {
	io.ReadCloser
	closed sync.Once
	mu     sync.Mutex
	cut    bool
}

func (c *cuttable) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil && c.cut {
		err = io.EOF
	}
	return n, err
}

func (c *cuttable) Close() error {
	c.mu.Lock()
	c.cut = true
	c.mu.Unlock()
	var err error
	c.closed.Do(func() { err = c.ReadCloser.Close() })
	return err
}

// eventually waits until the condition holds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
