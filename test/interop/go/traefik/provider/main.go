// Runs Traefik's own providers at one socket of Docker's API, and prints each dynamic configuration that differs from the one before, as
// a line of JSON: provider NAME SOCKET, where the name is "swarm" or "docker". Ends with its standard input.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	ptypes "github.com/traefik/paerser/types"
	"github.com/traefik/traefik/v3/pkg/config/dynamic"
	"github.com/traefik/traefik/v3/pkg/provider"
	"github.com/traefik/traefik/v3/pkg/provider/docker"
	"github.com/traefik/traefik/v3/pkg/safe"
)

func providerOf(name, endpoint string) provider.Provider {
	if name == "docker" {
		watched := &docker.Provider{}
		watched.SetDefaults()
		watched.Endpoint = endpoint
		return watched
	}
	polled := &docker.SwarmProvider{}
	polled.SetDefaults()
	polled.Endpoint = endpoint
	polled.RefreshSeconds = ptypes.Duration(time.Second)
	return polled
}

func need(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	from := providerOf(os.Args[1], "unix://"+os.Args[2])
	need(from.Init())
	messages := make(chan dynamic.Message)
	need(from.Provide(messages, safe.NewPool(context.Background())))
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	before := ""
	for message := range messages {
		text, err := json.Marshal(message.Configuration)
		need(err)
		if string(text) != before {
			fmt.Println(string(text))
			before = string(text)
		}
	}
}
