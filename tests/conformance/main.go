package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

func main() {
	bed := flag.String("bed", "", "the test bed's folder, as hack/cluster up --wardle --dir made it")
	env := flag.String("env", "", "a file with what hack/cluster env printed of it")
	definitions := flag.String("definitions", "", "a file with the definitions of Stoa's kinds, as the example crds of stoa-kinds prints them")
	document := flag.String("document", "", "the document that has to say what was found")
	update := flag.Bool("update", false, "write the document instead of comparing it")
	only := flag.String("run", "", "a regular expression; only checks whose area and name match are run, and no document is compared")
	modes := flag.String("modes", "direct,front", "directly, through kube-apiserver, or both")
	onlyStored := flag.Bool("stored", false, "only the areas of what comes from the log; no document is compared")
	first := flag.Int("first", 0, "have random conversations with the numbers from this one on, and nothing else; no document is compared")
	count := flag.Int("count", 1000, "how many of each kind")
	verbose := flag.Bool("v", false, "print every transcript")
	flag.Parse()
	switch {
	case *first > 0:
		addRandom(*first, *count)
		*only, *modes = "^"+random+": .*(?:"+*only+")", direct
	case *onlyStored:
		addRandom(1, conversations)
		*only = "^(?:" + strings.Join(stored, "|") + "): "
	default:
		addRandom(1, conversations)
	}
	if err := execute(*bed, *env, *definitions, *document, *update, *only, *modes, *verbose); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func execute(bedFolder, envFile, definitions, document string, update bool, only, modes string, verbose bool) (failure error) {
	b, err := openBed(bedFolder, envFile)
	if err != nil {
		return err
	}
	filter, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(checks, func(c *check) bool { return c.stoa && filter.MatchString(c.title()) }) {
		remove, err := b.defineKinds(definitions)
		if remove != nil {
			defer func() { failure = errors.Join(failure, remove()) }()
		}
		if err != nil {
			return err
		}
	}
	results, err := b.runAll(filter, strings.Split(modes, ","))
	if err != nil {
		return err
	}
	if verbose {
		for _, result := range results {
			fmt.Printf("=== %s\n%s", result.title(), result.reference)
			if !result.equal() {
				fmt.Printf("--- subject\n%s", result.subject)
			}
		}
	}
	failed := 0
	for _, result := range results {
		if result.equal() {
			continue
		}
		if reason := result.allowed(); reason != "" {
			continue
		}
		failed++
		fmt.Printf("DIFFERS %s\n%s\n", result.title(), difference(result.reference, result.subject))
	}
	equal, allowed := count(results)
	fmt.Printf("%d checks: %d equal, %d with a permitted difference, %d failed\n", len(results), equal, allowed, failed)
	if unused := unusedAllowances(results); len(unused) > 0 && only == "" {
		failed++
		fmt.Printf("permitted, but nothing differs any more:\n  %s\n", strings.Join(unused, "\n  "))
	}
	if failed > 0 {
		return fmt.Errorf("the subject differs from the reference")
	}
	if document == "" || only != "" || b.log != documented {
		return nil
	}
	text := report(results)
	if update {
		return os.WriteFile(document, text, 0o644)
	}
	known, err := os.ReadFile(document)
	if err != nil {
		return err
	}
	if !bytes.Equal(known, text) {
		return fmt.Errorf("%s is out of date; hack/conformance --update writes it anew\n%s", document, difference(string(known), string(text)))
	}
	return nil
}
