// The sample function. The line `mode: …` of its configuration says what it does.
package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
)

func main() {
	input, err := io.ReadAll(os.Stdin)
	if err != nil {
		fail(err.Error())
	}
	list := string(input)
	found := regexp.MustCompile(`(?m)^ +mode: "?([a-z-]+)"?$`).FindStringSubmatch(list)
	if found == nil {
		fail("no mode")
	}
	switch mode := found[1]; mode {
	case "set-team":
		fmt.Print(strings.ReplaceAll(list, "team: none", "team: sample"))
		fmt.Fprintln(os.Stderr, "set the team")
	case "fail":
		fmt.Print(list)
		fmt.Print("results:\n- message: no team\n  severity: error\n- message: an old team\n  severity: warning\n")
		fmt.Fprintln(os.Stderr, "the check failed")
		os.Exit(3)
	case "loop":
		for n := 0; ; n++ {
			_ = n
		}
	case "large":
		for range 1 << 20 {
			fmt.Println(strings.Repeat("x", 1023))
		}
	case "memory":
		var all [][]byte
		for {
			part := make([]byte, 16<<20)
			for at := 0; at < len(part); at += 4096 {
				part[at] = 1
			}
			all = append(all, part)
		}
	case "crash":
		panic("crashed on purpose")
	case "reach":
		reach()
	default:
		fail("unknown mode " + mode)
	}
}

// reach tries everything that a function may not do, and fails if any of it succeeds.
func reach() {
	var reached []string
	if _, err := os.ReadFile("/etc/passwd"); err == nil {
		reached = append(reached, "a file of the system")
	}
	if file := os.Getenv("SECRET"); file != "" {
		reached = append(reached, "a variable of the runner")
	}
	if err := os.WriteFile("written", []byte("x"), 0o600); err == nil {
		reached = append(reached, "a file of its own")
	}
	// For WASI, Go has a network of its own inside of the program.
	if _, err := net.Listen("tcp", "127.0.0.1:0"); err == nil && runtime.GOOS != "wasip1" {
		reached = append(reached, "the network")
	}
	if err := exec.Command("/bin/true").Run(); err == nil {
		reached = append(reached, "a program")
	}
	if len(reached) > 0 {
		fail("reached " + strings.Join(reached, ", "))
	}
	fmt.Print("apiVersion: config.kubernetes.io/v1\nkind: ResourceList\nitems: []\n")
}

func fail(message string) {
	fmt.Fprintln(os.Stderr, message)
	os.Exit(1)
}
