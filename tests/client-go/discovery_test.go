package clientgo

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/disk"
	openapicached "k8s.io/client-go/openapi/cached"
	"k8s.io/client-go/openapi3"
	"k8s.io/client-go/restmapper"
)

// kind is a kind that the server has to serve.
type kind struct {
	Group, Version, Kind, Plural, Singular string
	ShortNames                             []string
	Namespaced                             bool
}

// kinds are all of Stoa's, as tests/data/kinds.json lists them.
func kinds(t *testing.T) (kinds []kind) {
	t.Helper()
	text, err := os.ReadFile("../data/kinds.json")
	if err == nil {
		err = json.Unmarshal(text, &kinds)
	}
	if err != nil {
		t.Fatal(err)
	}
	return kinds
}

// What restmapper finds for every kind, whether discovery is aggregated or, as older clients ask, group by group.
func TestDiscovery(t *testing.T) {
	for name, legacy := range map[string]bool{"aggregated": false, "group by group": true} {
		t.Run(name, func(t *testing.T) { discover(t, legacy) })
	}
}

func discover(t *testing.T, legacy bool) {
	client, err := discovery.NewDiscoveryClientForConfig(config(t))
	if err != nil {
		t.Fatal(err)
	}
	var delegate discovery.DiscoveryInterface = client
	if legacy {
		delegate = client.WithLegacy()
	}
	groups, err := restmapper.GetAPIGroupResources(delegate)
	if err != nil {
		t.Fatal(err)
	}
	mapper := restmapper.NewShortcutExpander(restmapper.NewDiscoveryRESTMapper(groups), delegate, nil)
	for _, want := range kinds(t) {
		mapping, err := mapper.RESTMapping(schema.GroupKind{Group: want.Group, Kind: want.Kind})
		if err != nil {
			t.Errorf("%s: %v", want.Kind, err)
			continue
		}
		resource := schema.GroupVersionResource{Group: want.Group, Version: want.Version, Resource: want.Plural}
		if mapping.Resource != resource || (mapping.Scope.Name() == "namespace") != want.Namespaced {
			t.Errorf("%s maps to %v with scope %s", want.Kind, mapping.Resource, mapping.Scope.Name())
		}
		for _, name := range append(want.ShortNames, want.Plural, want.Singular) {
			found, err := mapper.KindFor(schema.GroupVersionResource{Group: want.Group, Resource: name})
			if err != nil || found.Kind != want.Kind {
				t.Errorf("%s is %v: %v", name, found, err)
			}
		}
	}
}

// The documents of OpenAPI v3 are read by the client that kubectl and controllers use, and its cache of them holds.
func TestOpenAPI(t *testing.T) {
	client, err := discovery.NewDiscoveryClientForConfig(config(t))
	if err != nil {
		t.Fatal(err)
	}
	root := openapi3.NewRoot(openapicached.NewClient(client.OpenAPIV3()))
	for _, kind := range kinds(t) {
		document, err := root.GVSpec(schema.GroupVersion{Group: kind.Group, Version: kind.Version})
		if err != nil {
			t.Errorf("%s: %v", kind.Group, err)
			continue
		}
		found := false
		for name, schema := range document.Components.Schemas {
			if strings.HasSuffix(name, "."+kind.Kind) {
				_, known := schema.Extensions["x-kubernetes-group-version-kind"]
				found = known && schema.Description != "" && len(schema.Properties) >= 4
			}
		}
		if !found {
			t.Errorf("%s has no complete schema of %s", kind.Group, kind.Kind)
		}
	}
	resources, err := client.OpenAPISchema()
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, definition := range resources.GetDefinitions().GetAdditionalProperties() {
		found = found || strings.HasSuffix(definition.GetName(), ".Backend")
	}
	if !found {
		t.Error("the document of OpenAPI v2 has no Backend")
	}
}

// tally counts answers by path and code.
type tally struct {
	next http.RoundTripper
	mu   sync.Mutex
	seen map[string]map[int]int
}

func (c *tally) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := c.next.RoundTrip(request)
	if err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.seen[request.URL.Path] == nil {
			c.seen[request.URL.Path] = map[int]int{}
		}
		c.seen[request.URL.Path][response.StatusCode]++
	}
	return response, err
}

// A client with a cache on disk, such as kubectl, asks whether discovery and schemas are still what they were, and is
// told so without their being sent again.
func TestCachedDiscoveryIsNotSentAgain(t *testing.T) {
	folder := t.TempDir()
	ask := func(round string) map[string]map[int]int {
		t.Helper()
		config := config(t)
		counted := &tally{seen: map[string]map[int]int{}}
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			counted.next = next
			return counted
		})
		// The folder of discovery is another each time, as if its time were over; that of answers stays.
		client, err := disk.NewCachedDiscoveryClientForConfig(config, filepath.Join(folder, round), filepath.Join(folder, "http"), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := client.ServerGroupsAndResources(); err != nil {
			t.Fatal(err)
		}
		paths, err := client.OpenAPIV3().Paths()
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range kinds(t) {
			if _, err := paths["apis/"+kind.Group+"/"+kind.Version].Schema("application/json"); err != nil {
				t.Fatal(err)
			}
		}
		return counted.seen
	}
	documents := []string{"/apis", "/openapi/v3", "/openapi/v3/apis/config.stoa.dev/v1alpha1"}
	first := ask("first")
	for _, path := range documents {
		if first[path][http.StatusOK] == 0 {
			t.Errorf("%s was not sent at first: %v", path, first[path])
		}
	}
	// What has changed meanwhile in other groups of the cluster is sent again, once.
	for round := range 5 {
		again := ask(fmt.Sprint("again", round))
		sent := slices.ContainsFunc(documents, func(path string) bool { return again[path][http.StatusOK] != 0 })
		asked := again["/apis"][http.StatusNotModified] != 0 && again["/openapi/v3"][http.StatusNotModified] != 0
		if !sent && asked {
			return
		}
		t.Logf("sent again: %v", again)
	}
	t.Error("the same was sent again and again")
}
