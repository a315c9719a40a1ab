// A module of Kusion for tests of the function-runner: the accessory says which part it plays.
package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

func main() {
	serve()
}

// accessory is what a developer writes.
type accessory struct {
	Schema string           `yaml:"_type"`
	Ports  []map[string]int `yaml:"ports"`
	Do     string           `yaml:"do"`
	Value  string           `yaml:"value"`
}

// resource is a resource of a Spec.
type resource struct {
	ID         string         `yaml:"id"`
	Type       string         `yaml:"type"`
	Attributes map[string]any `yaml:"attributes"`
	DependsOn  []string       `yaml:"dependsOn,omitempty"`
	Extensions map[string]any `yaml:"extensions,omitempty"`
}

// variable has the names that the YAML library gives to fields of Kubernetes' own type.
type variable struct {
	Name      string
	Value     string
	ValueFrom *struct{}
}

type jsonPatch struct {
	Type    string `yaml:"type"`
	Payload []byte `yaml:"payload"`
}

type patcher struct {
	Environments   []variable           `yaml:"environments,omitempty"`
	Labels         map[string]string    `yaml:"labels,omitempty"`
	PodLabels      map[string]string    `yaml:"podLabels,omitempty"`
	Annotations    map[string]string    `yaml:"annotations,omitempty"`
	PodAnnotations map[string]string    `yaml:"podAnnotations,omitempty"`
	JSONPatches    map[string]jsonPatch `yaml:"jsonPatcher,omitempty"`
}

type module struct{}

func (module) Generate(_ context.Context, request *generatorRequest) (*generatorResponse, error) {
	var wanted accessory
	if err := yaml.Unmarshal(request.DevConfig, &wanted); err != nil {
		return nil, err
	}
	platform := map[string]any{}
	if err := yaml.Unmarshal(request.PlatformConfig, &platform); err != nil {
		return nil, err
	}
	name := fmt.Sprintf("%s-%s-%s", request.Project, request.Stack, request.App)
	switch wanted.Do {
	case "crash":
		panic("a test wants this module to end")
	case "sleep":
		time.Sleep(time.Hour)
		return nil, errors.New("an hour went by")
	case "allocate":
		return allocate()
	case "reject":
		return nil, errors.New("ports must not be empty")
	case "nothing":
		return &generatorResponse{}, nil
	case "malformed":
		return &generatorResponse{Resources: [][]byte{[]byte("id: [\n")}}, nil
	case "wrong-id":
		return answer([]resource{{ID: "v1:ConfigMap:shop:other", Type: "Kubernetes", Attributes: configMap(request, "a", nil)}}, nil)
	case "reach":
		return answer([]resource{configMapResource(request, name+"-reach", reach())}, nil)
	case "echo":
		return answer([]resource{configMapResource(request, name+"-request", map[string]string{
			"app": request.App, "workload": string(request.Workload), "devConfig": string(request.DevConfig),
			"platformConfig": string(request.PlatformConfig), "context": string(request.Context),
			"secretStore": string(request.SecretStore),
		})}, nil)
	case "label":
		return answer(nil, &patcher{Labels: map[string]string{"tier": wanted.Value}})
	case "database":
		return database(name, request)
	}
	if strings.HasSuffix(wanted.Schema, ".Service") {
		return workload(name, request)
	}
	return network(name, request, wanted, platform)
}

func allocate() (*generatorResponse, error) {
	var all [][]byte
	for {
		part := make([]byte, 1<<20)
		for at := range part {
			part[at] = 1
		}
		all = append(all, part)
		if len(all) > 1<<20 {
			return nil, errors.New("there is no limit")
		}
	}
}

// network makes a Service for the ports, of the type that the platform wants, and labels the workload.
func network(name string, request *generatorRequest, wanted accessory, platform map[string]any) (*generatorResponse, error) {
	if len(wanted.Ports) == 0 {
		return nil, errors.New("ports must not be empty")
	}
	kind, _ := platform["type"].(string)
	if kind == "" {
		kind = "ClusterIP"
	}
	var ports []any
	for _, port := range wanted.Ports {
		ports = append(ports, map[string]any{"port": port["port"], "name": fmt.Sprintf("p%d", port["port"])})
	}
	service := resource{
		ID:   "v1:Service:" + request.Project + ":" + name,
		Type: "Kubernetes",
		Attributes: map[string]any{
			"apiVersion": "v1",
			"kind":       "Service",
			"metadata":   map[string]any{"name": name, "namespace": request.Project, "creationTimestamp": nil},
			"spec":       map[string]any{"type": kind, "ports": ports, "selector": map[string]any{"app.kubernetes.io/name": request.App}},
		},
		Extensions: map[string]any{"GVK": "/v1, Kind=Service"},
	}
	changes := &patcher{
		Environments:   []variable{{Name: "SERVICE", Value: name}},
		Labels:         map[string]string{"network": "on"},
		PodLabels:      map[string]string{"network": "on"},
		Annotations:    map[string]string{"example.com/network": "on"},
		PodAnnotations: map[string]string{"example.com/network": "on"},
		JSONPatches: map[string]jsonPatch{
			"v1:Namespace:" + request.Project: {Type: "MergePatch", Payload: []byte(`{"metadata":{"labels":{"network":"on"}}}`)},
		},
	}
	return answer([]resource{service}, changes)
}

// database makes a resource of a Terraform provider, and a ConfigMap that has a reference to it.
func database(name string, request *generatorRequest) (*generatorResponse, error) {
	id := "hashicorp:random:random_pet:" + name
	pet := resource{
		ID:         id,
		Type:       "Terraform",
		Attributes: map[string]any{"length": 2},
		Extensions: map[string]any{"provider": "registry.terraform.io/hashicorp/random/3.6.0", "resourceType": "random_pet"},
	}
	settings := configMapResource(request, name+"-database", map[string]string{"host": "$kusion_path." + id + ".id"})
	settings.DependsOn = []string{id}
	return answer([]resource{settings, pet}, nil)
}

// workload makes the Deployment of an application.
func workload(name string, request *generatorRequest) (*generatorResponse, error) {
	labels := map[string]any{"app": request.App}
	deployment := resource{
		ID:   "apps/v1:Deployment:" + request.Project + ":" + name,
		Type: "Kubernetes",
		Attributes: map[string]any{
			"apiVersion": "apps/v1",
			"kind":       "Deployment",
			"metadata":   map[string]any{"name": name, "namespace": request.Project},
			"spec": map[string]any{
				"selector": map[string]any{"matchLabels": labels},
				"template": map[string]any{
					"metadata": map[string]any{"labels": labels},
					"spec":     map[string]any{"containers": []any{map[string]any{"name": "main", "image": "example.com/web:1"}}},
				},
			},
		},
		Extensions: map[string]any{"kusion.io/is-workload": true},
	}
	return answer([]resource{deployment}, nil)
}

func configMap(request *generatorRequest, name string, data map[string]string) map[string]any {
	return map[string]any{
		"apiVersion": "v1",
		"kind":       "ConfigMap",
		"metadata":   map[string]any{"name": name, "namespace": request.Project},
		"data":       data,
	}
}

func configMapResource(request *generatorRequest, name string, data map[string]string) resource {
	id := "v1:ConfigMap:" + request.Project + ":" + name
	return resource{ID: id, Type: "Kubernetes", Attributes: configMap(request, name, data)}
}

// answer encodes resources and changes as the module framework does.
func answer(resources []resource, changes *patcher) (*generatorResponse, error) {
	response := &generatorResponse{}
	for _, each := range resources {
		encoded, err := yaml.Marshal(each)
		if err != nil {
			return nil, err
		}
		response.Resources = append(response.Resources, encoded)
	}
	if changes != nil {
		encoded, err := yaml.Marshal(changes)
		if err != nil {
			return nil, err
		}
		response.Patcher = encoded
	}
	return response, nil
}
