package main

import (
	"net"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// reach tries to reach what is outside of the sandbox, and says what came of it. Nothing is changed where it succeeds.
func reach() map[string]string {
	result := func(err error) string {
		if err == nil {
			return "done"
		}
		return "denied"
	}
	read := func(path string) string {
		_, err := os.ReadFile(path)
		return result(err)
	}
	list := func(path string) string {
		_, err := os.ReadDir(path)
		return result(err)
	}
	dial := func(network, address string) string {
		connection, err := net.DialTimeout(network, address, time.Second)
		if err == nil {
			err = connection.Close()
		}
		return result(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		_ = listener.Close()
	}
	listen := result(err)
	file, err := os.CreateTemp("/tmp", "stoa-module")
	if err == nil {
		_ = file.Close()
		_ = os.Remove(file.Name())
	}
	temporary := result(err)
	folder, _ := os.Getwd()
	entries, _ := os.ReadDir(folder)
	_, secret := os.LookupEnv("STOA_TEST_SECRET")
	return map[string]string{
		"read /etc/passwd":     read("/etc/passwd"),
		"read its environment": read("/proc/self/environ"),
		"read of its parent":   read("/proc/" + strconv.Itoa(os.Getppid()) + "/environ"),
		"list /":               list("/"),
		"list above":           list(".."),
		"write to /tmp":        temporary,
		"listen":               listen,
		"connect":              dial("tcp", "127.0.0.1:80"),
		"connect by udp":       dial("udp", "127.0.0.1:53"),
		"program":              result(exec.Command("/bin/true").Run()),
		"itself":               result(exec.Command("/proc/self/exe").Run()),
		"secret":               strconv.FormatBool(secret),
		"files":                strconv.Itoa(len(entries)),
	}
}
