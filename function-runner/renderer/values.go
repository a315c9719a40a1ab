package main

import (
	"bytes"
	"errors"
	"io"
	"strings"

	"gopkg.in/yaml.v3"

	"stoa.dev/function-runner/renderer/rendererpb"
)

// The annotations of a ConfigMap whose entries the values of the platform replace. The second one leaves it out of the output.
const (
	valuesAnnotation = "stoa.dev/values"
	localAnnotation  = "config.kubernetes.io/local-config"
)

// givenValues are those of the platform and the parameters, for ConfigMaps of a kustomization.
type givenValues struct {
	given []*rendererpb.Parameter
	// Whether there is such a ConfigMap.
	areRead bool
	// The first ConfigMap that is wrong.
	wrong *wrong
}

func newGivenValues(given []*rendererpb.Parameter) *givenValues { return &givenValues{given: given} }

// change sets the entries in the ConfigMaps of a file. Entries without a value stay, as defaults.
func (v *givenValues) change(file string, content []byte) ([]byte, error) {
	if !bytes.Contains(content, []byte(valuesAnnotation)) {
		return content, nil
	}
	var documents []*yaml.Node
	isChanged := false
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	for {
		document := new(yaml.Node)
		err := decoder.Decode(document)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			// Kustomize reports it, if it reads the file as YAML.
			return content, nil
		}
		documents = append(documents, document)
		changed, err := v.changeDocument(file, document)
		if err != nil {
			if v.wrong == nil {
				errors.As(err, &v.wrong)
			}
			return nil, err
		}
		isChanged = isChanged || changed
	}
	if !isChanged {
		return content, nil
	}
	v.areRead = true
	var changed bytes.Buffer
	encoder := yaml.NewEncoder(&changed)
	for _, document := range documents {
		if err := encoder.Encode(document); err != nil {
			return nil, &wrong{file: file, message: err.Error()}
		}
	}
	if err := encoder.Close(); err != nil {
		return nil, &wrong{file: file, message: err.Error()}
	}
	return changed.Bytes(), nil
}

// changeDocument is whether a document is such a ConfigMap, whose entries it sets.
func (v *givenValues) changeDocument(file string, document *yaml.Node) (bool, error) {
	if document.Kind != yaml.DocumentNode || len(document.Content) != 1 {
		return false, nil
	}
	object := document.Content[0]
	annotations := field(field(object, "metadata"), "annotations")
	annotation := field(annotations, valuesAnnotation)
	if annotation == nil || annotation.Value != "true" || text(object, "kind") != "ConfigMap" || text(object, "apiVersion") != "v1" {
		return false, nil
	}
	if text(annotations, localAnnotation) != "true" {
		message := "a ConfigMap with the annotation " + valuesAnnotation + " is not deployed; add the annotation " + localAnnotation + `: "true"`
		return false, &wrong{file: file, line: annotation.Line, message: message}
	}
	data := field(object, "data")
	if data == nil || data.Kind != yaml.MappingNode {
		data = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		set(object, "data", data)
	}
	for _, value := range v.given {
		set(data, value.Name, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: strings.ToValidUTF8(value.Value, "�")})
	}
	return true, nil
}

func text(fields *yaml.Node, name string) string {
	if found := field(fields, name); found != nil {
		return found.Value
	}
	return ""
}

// set sets the value of a map's field.
func set(fields *yaml.Node, name string, value *yaml.Node) {
	for at := 0; at+1 < len(fields.Content); at += 2 {
		if fields.Content[at].Value == name {
			fields.Content[at+1] = value
			return
		}
	}
	fields.Content = append(fields.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: name}, value)
}
