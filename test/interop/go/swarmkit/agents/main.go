// SwarmKit's own agents, many in one process, with an executor that runs nothing: its tasks are RUNNING until they are told to
// stop. For tests and benchmarks of managers.
//
//	agents -join ADDR:PORT -token TOKEN -state-dir DIR [-count N] [-hostname PREFIX]
//
// Prints "ready N" once the Nth has registered, and ends with SIGTERM, which lets the agents leave their sessions.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"

	"github.com/moby/swarmkit/v2/agent/exec"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/node"
)

type executor struct{ hostname string }

func (e executor) Describe(context.Context) (*api.NodeDescription, error) {
	return &api.NodeDescription{
		Hostname:  e.hostname,
		Platform:  &api.Platform{OS: runtime.GOOS, Architecture: runtime.GOARCH},
		Resources: &api.Resources{NanoCPUs: 1e12, MemoryBytes: 1 << 40},
		Engine:    &api.EngineDescription{EngineVersion: "agents"},
	}, nil
}

func (executor) Configure(context.Context, *api.Node) error         { return nil }
func (executor) SetNetworkBootstrapKeys([]*api.EncryptionKey) error { return nil }
func (executor) Controller(*api.Task) (exec.Controller, error) {
	return &controller{done: make(chan struct{})}, nil
}

type controller struct {
	once sync.Once
	done chan struct{}
}

func (c *controller) end() error {
	c.once.Do(func() { close(c.done) })
	return nil
}

func (*controller) Update(context.Context, *api.Task) error { return nil }
func (*controller) Prepare(context.Context) error           { return nil }
func (*controller) Start(context.Context) error             { return nil }
func (*controller) Remove(context.Context) error            { return nil }
func (c *controller) Shutdown(context.Context) error        { return c.end() }
func (c *controller) Terminate(context.Context) error       { return c.end() }
func (c *controller) Close() error                          { return c.end() }

func (c *controller) Wait(ctx context.Context) error {
	select {
	case <-c.done:
	case <-ctx.Done():
	}
	return nil
}

func main() {
	join := flag.String("join", "", "address of a manager")
	token := flag.String("token", "", "join token")
	stateDir := flag.String("state-dir", "", "folder for the agents' identities")
	count := flag.Int("count", 1, "number of agents")
	hostname := flag.String("hostname", "agent", "prefix of hostnames")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	var all sync.WaitGroup
	failed := make(chan error, *count)
	registered := make(chan struct{})
	for i := range *count {
		name := fmt.Sprintf("%s-%d", *hostname, i)
		all.Add(1)
		go func() {
			defer all.Done()
			if err := run(ctx, name, *join, *token, filepath.Join(*stateDir, name), registered); err != nil {
				failed <- fmt.Errorf("%s: %w", name, err)
				cancel()
			}
		}()
	}
	go func() {
		for n := 1; ; n++ {
			<-registered
			fmt.Println("ready", n)
		}
	}()
	all.Wait()
	select {
	case err := <-failed:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	default:
	}
}

func run(ctx context.Context, name, join, token, stateDir string, registered chan<- struct{}) error {
	n, err := node.New(&node.Config{
		Hostname: name, JoinAddr: join, JoinToken: token, StateDir: stateDir,
		ListenControlAPI: filepath.Join(stateDir, "control.sock"), Executor: executor{name},
	})
	if err != nil {
		return err
	}
	if err := n.Start(ctx); err != nil {
		return err
	}
	select {
	case <-n.Ready():
		registered <- struct{}{}
	case <-ctx.Done():
	}
	<-ctx.Done()
	// A node that is told to stop says so by its context's error, which is no failure.
	if err := n.Stop(context.Background()); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}
