package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strings"

	"gopkg.in/yaml.v3"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	v2util "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/ignore"
)

// loadChart loads a chart from memory, so that Helm reads no file itself.
func loadChart(tree *tree, folder string) (*chart.Chart, error) {
	file := path.Join(folder, chartFile)
	if !tree.Exists(path.Join(mount, file)) {
		return nil, &wrong{file: folder, message: "has no Chart.yaml"}
	}
	files, err := chartFiles(tree, folder)
	if err != nil {
		return nil, err
	}
	loaded, err := loader.LoadFiles(files)
	if err != nil {
		return nil, syntax(file, err)
	}
	if kind := loaded.Metadata.Type; kind != "" && kind != "application" {
		return nil, &wrong{file: file, message: fmt.Sprintf("a chart of type %s is not deployed; use it as a dependency", kind)}
	}
	if err := checkDependencies(tree, folder, loaded); err != nil {
		return nil, err
	}
	return loaded, checkSchemas(folder, loaded)
}

var byteOrderMark = []byte{0xEF, 0xBB, 0xBF}

// chartFiles reads the files of a chart, without those that .helmignore names.
func chartFiles(tree *tree, folder string) ([]*archive.BufferedFile, error) {
	top := path.Join(mount, folder)
	rules := ignore.Empty()
	if at := path.Join(top, ignore.HelmIgnore); tree.Exists(at) {
		content, err := tree.ReadFile(at)
		if err != nil {
			return nil, located(err, path.Join(folder, ignore.HelmIgnore), 0)
		}
		if rules, err = ignore.Parse(bytes.NewReader(content)); err != nil {
			return nil, &wrong{file: path.Join(folder, ignore.HelmIgnore), message: err.Error()}
		}
	}
	rules.AddDefaults()
	var files []*archive.BufferedFile
	err := tree.Walk(top, func(name string, info fs.FileInfo, err error) error {
		if err != nil {
			return err
		}
		below := strings.TrimPrefix(strings.TrimPrefix(name, top), "/")
		if below == "" {
			return nil
		}
		if info.IsDir() {
			if rules.Ignore(below, info) {
				return filepath.SkipDir
			}
			return nil
		}
		if rules.Ignore(below, info) {
			return nil
		}
		content, err := tree.ReadFile(name)
		if err != nil {
			return located(err, path.Join(folder, below), 0)
		}
		files = append(files, &archive.BufferedFile{Name: below, Data: bytes.TrimPrefix(content, byteOrderMark)})
		return nil
	})
	return files, err
}

// checkDependencies refuses charts whose dependencies are not in them. Helm renders one without what is missing, and one of another
// version without its alias and condition.
func checkDependencies(tree *tree, folder string, loaded *chart.Chart) error {
	for _, wanted := range loaded.Metadata.Dependencies {
		if wanted == nil {
			continue
		}
		found := ""
		isThere := false
		for _, dependency := range loaded.Dependencies() {
			if dependency.Name() == wanted.Name {
				found = dependency.Metadata.Version
				isThere = isThere || v2util.IsCompatibleRange(wanted.Version, found)
			}
		}
		if isThere {
			continue
		}
		message := fmt.Sprintf("dependency %s %s is not in charts; nothing is downloaded, so run `helm dependency build` and commit the folder", wanted.Name, wanted.Version)
		if found != "" {
			message = fmt.Sprintf("dependency %s has version %s in charts, and %s is wanted; run `helm dependency update` and commit the folder", wanted.Name, found, wanted.Version)
		}
		file := path.Join(folder, chartFile)
		return &wrong{file: file, line: lineOfDependency(tree, file, wanted.Name), message: message}
	}
	for _, dependency := range loaded.Dependencies() {
		if err := checkDependencies(tree, path.Join(folder, "charts", dependency.Name()), dependency); err != nil {
			return err
		}
	}
	return nil
}

// lineOfDependency is the line with the name of a dependency; 0 in an archive.
func lineOfDependency(tree *tree, file, name string) int {
	content, err := tree.ReadFile(path.Join(mount, file))
	var document yaml.Node
	if err != nil || yaml.Unmarshal(content, &document) != nil || len(document.Content) == 0 {
		return 0
	}
	list := field(document.Content[0], "dependencies")
	if list == nil {
		return 0
	}
	for _, dependency := range list.Content {
		if of := field(dependency, "name"); of != nil && of.Value == name {
			return of.Line
		}
	}
	return 0
}

// checkSchemas refuses schemas that refer to other documents, which the library would read or download.
func checkSchemas(folder string, loaded *chart.Chart) error {
	var schema any
	if len(loaded.Schema) > 0 && json.Unmarshal(loaded.Schema, &schema) == nil {
		if reference := remoteReference(schema); reference != "" {
			message := fmt.Sprintf("refers to %q; a schema can only refer to its own definitions, such as #/definitions/port", reference)
			return &wrong{file: path.Join(folder, "values.schema.json"), message: message}
		}
	}
	for _, dependency := range loaded.Dependencies() {
		if err := checkSchemas(path.Join(folder, "charts", dependency.Name()), dependency); err != nil {
			return err
		}
	}
	return nil
}

// remoteReference is a reference of a schema that leads to another document.
func remoteReference(schema any) string {
	switch schema := schema.(type) {
	case map[string]any:
		for name, value := range schema {
			text, isText := value.(string)
			switch {
			case !isText:
			case name == "$schema" && !strings.Contains(text, "//json-schema.org/"):
				return text
			case strings.HasPrefix(name, "$") && strings.HasSuffix(strings.ToLower(name), "ref") && !strings.HasPrefix(text, "#"):
				return text
			}
			if found := remoteReference(value); found != "" {
				return found
			}
		}
	case []any:
		for _, value := range schema {
			if found := remoteReference(value); found != "" {
				return found
			}
		}
	}
	return ""
}
