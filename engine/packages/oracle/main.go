// Merges packages with kpt's own library. The tests of engine/packages compare the results with theirs.
//
// Each line of the standard input is a question in JSON, and each line of the standard output is its answer.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/kptdev/kpt/pkg/lib/update"
	"github.com/kptdev/kpt/pkg/lib/update/updatetypes"
	"sigs.k8s.io/kustomize/kyaml/openapi"
)

// files are a package: its texts by their paths.
type files map[string]string

type question struct {
	// Strategy is the name of an update strategy.
	Strategy string `json:"strategy"`
	Origin   files  `json:"origin"`
	Upstream files  `json:"upstream"`
	Local    files  `json:"local"`
}

type answer struct {
	Files files  `json:"files,omitempty"`
	Error string `json:"error,omitempty"`
}

func main() {
	in := bufio.NewReader(os.Stdin)
	questions := json.NewDecoder(in)
	answers := json.NewEncoder(os.Stdout)
	for questions.More() {
		var asked question
		if err := questions.Decode(&asked); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		merged, err := merge(asked)
		given := answer{Files: merged}
		if err != nil {
			given = answer{Error: err.Error()}
		}
		if err := answers.Encode(given); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// merge updates the local package in a folder of its own, and returns its files.
func merge(asked question) (files, error) {
	root, err := os.MkdirTemp("", "stoa-packages-oracle-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(root)
	folder := func(name string) string { return filepath.Join(root, name) }
	for name, tree := range map[string]files{"origin": asked.Origin, "upstream": asked.Upstream, "local": asked.Local} {
		if err := write(folder(name), tree); err != nil {
			return nil, err
		}
	}
	if asked.hasDefinitions() {
		// kpt adds them to the schemas of its process.
		defer openapi.ResetOpenAPI()
	}
	updater := update.GetUpdater(asked.Strategy)
	if updater == nil {
		return nil, fmt.Errorf("unknown strategy %q", asked.Strategy)
	}
	err = updater.Update(updatetypes.Options{
		RelPackagePath: ".",
		OriginPath:     folder("origin"),
		UpdatedPath:    folder("upstream"),
		LocalPath:      folder("local"),
		IsRoot:         true,
	})
	if err != nil {
		return nil, err
	}
	return read(folder("local"))
}

func (asked question) hasDefinitions() bool {
	for _, tree := range []files{asked.Upstream, asked.Local} {
		for _, text := range tree {
			if strings.Contains(text, "CustomResourceDefinition") {
				return true
			}
		}
	}
	return false
}

func write(root string, tree files) error {
	if err := os.MkdirAll(root, 0o700); err != nil {
		return err
	}
	for path, text := range tree {
		file := filepath.Join(root, filepath.FromSlash(path))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func read(root string) (files, error) {
	tree := files{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		tree[filepath.ToSlash(relative)] = string(text)
		return nil
	})
	return tree, err
}
