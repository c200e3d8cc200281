// Runs many of SwarmKit's agents in one process, with an executor that runs nothing: its tasks stay RUNNING until they are
// stopped. For tests and benchmarks of managers.
//
//	agents -join ADDR:PORT -token TOKEN -state-dir DIR [-count N] [-hostname PREFIX] [-events]
//
// Prints "ready N" once N agents have registered. On SIGTERM the agents leave their sessions before the process exits. With
// -events it also prints "started TASK", "ended TASK", and "heartbeat NODE SESSION" for each heartbeat that a manager answered.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"

	"github.com/moby/swarmkit/v2/agent/exec"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/node"
	"github.com/sirupsen/logrus"
)

type executor struct {
	hostname string
	events   bool
}

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
func (e executor) Controller(task *api.Task) (exec.Controller, error) {
	return &controller{task: task.ID, events: e.events, done: make(chan struct{})}, nil
}

type controller struct {
	task   string
	events bool
	once   sync.Once
	done   chan struct{}
}

func (c *controller) say(what string) {
	if c.events {
		fmt.Println(what, c.task)
	}
}

func (c *controller) end() error {
	c.once.Do(func() {
		close(c.done)
		c.say("ended")
	})
	return nil
}

func (c *controller) Start(context.Context) error {
	c.say("started")
	return nil
}

func (*controller) Update(context.Context, *api.Task) error { return nil }
func (*controller) Prepare(context.Context) error           { return nil }
func (*controller) Remove(context.Context) error            { return nil }
func (c *controller) Shutdown(context.Context) error        { return c.end() }
func (c *controller) Terminate(context.Context) error       { return c.end() }
func (c *controller) Close() error                          { return c.end() }

// Wait returns when the task ends. An interrupted wait must return an error: without one, the agent assumes a finished task.
func (c *controller) Wait(ctx context.Context) error {
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// heartbeats prints the answered heartbeats from the agent's log, the only place that has the session's id.
type heartbeats struct{}

func (heartbeats) Levels() []logrus.Level { return []logrus.Level{logrus.DebugLevel} }

func (heartbeats) Fire(entry *logrus.Entry) error {
	if strings.HasPrefix(entry.Message, "heartbeat successful") {
		fmt.Println("heartbeat", entry.Data["node.id"], entry.Data["sessionID"])
	}
	return nil
}

// unwritten keeps log entries meant for heartbeats out of standard error.
type unwritten struct{ logrus.TextFormatter }

func (f *unwritten) Format(entry *logrus.Entry) ([]byte, error) {
	if entry.Level > logrus.WarnLevel {
		return nil, nil
	}
	return f.TextFormatter.Format(entry)
}

func main() {
	join := flag.String("join", "", "address of a manager")
	token := flag.String("token", "", "join token")
	stateDir := flag.String("state-dir", "", "folder for the agents' identities")
	count := flag.Int("count", 1, "number of agents")
	hostname := flag.String("hostname", "agent", "prefix of hostnames")
	events := flag.Bool("events", false, "print events of tasks and sessions")
	flag.Parse()
	logrus.SetLevel(logrus.WarnLevel)
	if *events {
		logrus.SetLevel(logrus.DebugLevel)
		logrus.SetFormatter(&unwritten{})
		logrus.AddHook(heartbeats{})
	}
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
			if err := run(ctx, name, *join, *token, filepath.Join(*stateDir, name), *events, registered); err != nil {
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

// run keeps one agent in the cluster until the context ends. A node gives up its first join after five attempts; like an operator, run
// then joins again.
func run(ctx context.Context, name, join, token, stateDir string, events bool, registered chan<- struct{}) error {
	for {
		n, err := node.New(&node.Config{
			Hostname: name, JoinAddr: join, JoinToken: token, StateDir: stateDir,
			ListenControlAPI: filepath.Join(stateDir, "control.sock"), Executor: executor{name, events},
		})
		if err != nil {
			return err
		}
		if err := n.Start(ctx); err != nil {
			return err
		}
		ended := make(chan error, 1)
		go func() { ended <- n.Err(ctx) }()
		select {
		case <-n.Ready():
			registered <- struct{}{}
			<-ctx.Done()
		case err := <-ended:
			if ctx.Err() == nil {
				fmt.Fprintf(os.Stderr, "%s joins again: %v\n", name, err)
				continue
			}
		case <-ctx.Done():
		}
		// A stopped node returns the error of its context, which is not a failure.
		if err := n.Stop(context.Background()); err != nil && ctx.Err() == nil {
			return err
		}
		return nil
	}
}
