package main

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"stoa.dev/function-runner/renderer/rendererpb"
)

// The value that a schema refuses, as the library names it: "- at '/image/tag': got number, want string".
var refusedValue = regexp.MustCompile(`(?m)at '(/[^']*)'`)

// ofSchema is an error of a schema, with the origin of the value that it refuses: a parameter, a value of the platform, or a file with
// the line.
func ofSchema(tree *tree, folder string, request *rendererpb.Helm, err error) error {
	found := &wrong{file: path.Join(folder, "values.yaml"), message: err.Error()}
	refused := refusedValue.FindStringSubmatch(found.message)
	if refused == nil {
		return found
	}
	pointer := unescaped(strings.Split(strings.TrimPrefix(refused[1], "/"), "/"))
	for at := len(request.Parameters) - 1; at >= 0; at-- {
		if name := request.Parameters[at].Name; covers(name, pointer) {
			return fmt.Errorf("parameter %q: %w", name, err)
		}
	}
	var files []string
	for _, name := range request.ValuesFiles {
		if file, err := join(folder, name); err == nil {
			files = append(files, file)
		}
	}
	// The strongest origin that sets the value; a missing one has the line of the map around it.
	for depth := len(pointer); depth > 0; depth-- {
		part := pointer[:depth]
		for at := len(files) - 1; at >= 0; at-- {
			if line := lineOf(tree, files[at], part); line > 0 {
				return &wrong{file: files[at], line: line, message: found.message}
			}
		}
		for _, value := range request.Values {
			if value.Name == part[0] && (depth == 1 || lineIn([]byte(value.Json), part[1:]) > 0) {
				return fmt.Errorf("value %q of %s: %w", value.Name, value.Origin, err)
			}
		}
		if line := lineOf(tree, found.file, part); line > 0 {
			return &wrong{file: found.file, line: line, message: found.message}
		}
	}
	return found
}

// covers is whether the value of a parameter such as "hosts[0].name" includes the one at a pointer.
func covers(parameter string, pointer []string) bool {
	parts := strings.Split(strings.NewReplacer("[", ".", "]", "").Replace(parameter), ".")
	return len(parts) <= len(pointer) && slices.Equal(parts, pointer[:len(parts)])
}

// unescaped are the parts of a JSON pointer as names.
func unescaped(pointer []string) []string {
	plain := strings.NewReplacer("~1", "/", "~0", "~")
	for at, part := range pointer {
		pointer[at] = plain.Replace(part)
	}
	return pointer
}

// lineOf is the line of a value in a file, or 0.
func lineOf(tree *tree, file string, pointer []string) int {
	content, err := tree.ReadFile(path.Join(mount, file))
	if err != nil {
		return 0
	}
	return lineIn(content, pointer)
}

// lineIn is the line of a value in a document, or 0.
func lineIn(content []byte, pointer []string) int {
	var document yaml.Node
	if yaml.Unmarshal(content, &document) != nil || len(document.Content) != 1 {
		return 0
	}
	at, line := document.Content[0], 0
	for _, part := range pointer {
		if at.Kind == yaml.AliasNode {
			at = at.Alias
		}
		var next *yaml.Node
		switch at.Kind {
		case yaml.MappingNode:
			for key := 0; key+1 < len(at.Content); key += 2 {
				if at.Content[key].Value == part {
					next, line = at.Content[key+1], at.Content[key].Line
				}
			}
		case yaml.SequenceNode:
			if index, err := strconv.Atoi(part); err == nil && index >= 0 && index < len(at.Content) {
				next = at.Content[index]
				line = next.Line
			}
		}
		if next == nil {
			return 0
		}
		at = next
	}
	return line
}
