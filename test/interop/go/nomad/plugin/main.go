// A task driver that uses HashiCorp's plugin library: the foreign peer of the host's conformance suite. Its tasks are real
// processes. It reads the messages from this project's .proto files at run time, so that it shares no code with the tested side.
//
//	MUSTER_PROTO_DIR=<tree>/proto go-driver
//
// host.go has the host's side.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/bufbuild/protocompile"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

var (
	base    protoreflect.FileDescriptor
	drivers protoreflect.FileDescriptor
	logger  hclog.Logger
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func load() {
	compiler := protocompile.Compiler{Resolver: protocompile.WithStandardImports(
		&protocompile.SourceResolver{ImportPaths: []string{os.Getenv("MUSTER_PROTO_DIR")}})}
	files, err := compiler.Compile(context.Background(),
		"hashicorp/nomad/plugins/base/base.proto", "hashicorp/nomad/plugins/drivers/driver.proto")
	must(err)
	base, drivers = files[0], files[1]
}

type message = *dynamicpb.Message

func in(file protoreflect.FileDescriptor, name protoreflect.Name) message {
	return dynamicpb.NewMessage(file.Messages().ByName(name))
}

func field(m protoreflect.Message, name protoreflect.Name) protoreflect.FieldDescriptor {
	found := m.Descriptor().Fields().ByName(name)
	if found == nil {
		panic("no field " + name)
	}
	return found
}

func get(m protoreflect.Message, name protoreflect.Name) protoreflect.Value {
	return m.Get(field(m, name))
}
func text(m protoreflect.Message, name protoreflect.Name) string { return get(m, name).String() }
func set(m protoreflect.Message, name protoreflect.Name, value any) {
	m.Set(field(m, name), protoreflect.ValueOf(value))
}
func sub(m protoreflect.Message, name protoreflect.Name) protoreflect.Message {
	return m.Mutable(field(m, name)).Message()
}

func stamp(m protoreflect.Message, name protoreflect.Name, at time.Time) {
	inner := sub(m, name)
	set(inner, "seconds", at.Unix())
	set(inner, "nanos", int32(at.Nanosecond()))
}

func duration(m protoreflect.Message, name protoreflect.Name) (time.Duration, error) {
	if !m.Has(field(m, name)) {
		return 0, errors.New("duration: nil Duration")
	}
	inner := get(m, name).Message()
	return time.Duration(get(inner, "seconds").Int())*time.Second + time.Duration(get(inner, "nanos").Int()), nil
}

// One task: a shell that runs the text after the first space in the raw bytes of the configuration.
type task struct {
	cmd     *exec.Cmd
	config  protoreflect.Message
	started time.Time
	done    chan struct{}
	ended   time.Time
	code    int
	signal  int
}

var errUnknown = errors.New("task not found for given id")

type driver struct {
	sync.Mutex
	tasks   map[string]*task
	printed sync.Once
}

func (d *driver) find(id string) (*task, error) {
	d.Lock()
	defer d.Unlock()
	if found := d.tasks[id]; found != nil {
		return found, nil
	}
	return nil, errUnknown
}

// The schema: one required attribute, `command`.
func schema(m protoreflect.Message) {
	object := sub(sub(m, "spec"), "object")
	fields := object.Mutable(field(object, "attributes")).Map()
	attr := fields.NewValue()
	inner := sub(attr.Message(), "Attr")
	set(inner, "name", "command")
	set(inner, "type", "string")
	set(inner, "required", true)
	fields.Set(protoreflect.ValueOfString("command").MapKey(), attr)
}

// {"command": text} in MessagePack, the only form that the schema above allows.
func commandOf(packed []byte) (string, error) {
	prefix := append([]byte{0x81, 0xa7}, "command"...)
	if !bytes.HasPrefix(packed, prefix) {
		return "", fmt.Errorf("configuration %x does not begin as it should", packed)
	}
	rest := packed[len(prefix):]
	switch {
	case rest[0]&0xe0 == 0xa0:
		return string(rest[1:]), nil
	case rest[0] == 0xd9:
		return string(rest[2:]), nil
	case rest[0] == 0xda:
		return string(rest[3:]), nil
	}
	return "", fmt.Errorf("command is not a string: %x", rest)
}

func (d *driver) start(config protoreflect.Message) error {
	command, err := commandOf(get(config, "msgpack_driver_config").Bytes())
	if err != nil {
		return err
	}
	id := text(config, "id")
	d.Lock()
	defer d.Unlock()
	if d.tasks[id] != nil {
		return fmt.Errorf("task with ID %q already started", id)
	}
	cmd := exec.Command("/bin/sh", "-c", command)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	for path, out := range map[string]*io.Writer{text(config, "stdout_path"): &cmd.Stdout, text(config, "stderr_path"): &cmd.Stderr} {
		if path == "" {
			continue
		}
		file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			return err
		}
		defer file.Close()
		*out = file
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	t := &task{cmd: cmd, config: config, started: time.Now(), done: make(chan struct{})}
	d.tasks[id] = t
	go func() {
		_ = cmd.Wait()
		t.ended = time.Now()
		t.code = cmd.ProcessState.ExitCode()
		if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			t.signal = int(status.Signal())
			t.code = 128 + t.signal
		}
		logger.Info("task ended", "id", id, "code", t.code)
		close(t.done)
	}()
	return nil
}

func (t *task) running() bool {
	select {
	case <-t.done:
		return false
	default:
		return true
	}
}

func (t *task) kill(signal syscall.Signal) { _ = syscall.Kill(-t.cmd.Process.Pid, signal) }

func result(m protoreflect.Message, name protoreflect.Name, code, signal int) {
	inner := sub(m, name)
	set(inner, "exit_code", int32(code))
	set(inner, "signal", int32(signal))
}

var signals = map[string]syscall.Signal{"": syscall.SIGINT, "SIGINT": syscall.SIGINT, "SIGTERM": syscall.SIGTERM,
	"SIGKILL": syscall.SIGKILL, "SIGHUP": syscall.SIGHUP, "SIGUSR1": syscall.SIGUSR1}

// Fills in the answers of all methods except streams.
func (d *driver) unary(ctx context.Context, method string, request, answer protoreflect.Message) error {
	switch method {
	case "PluginInfo":
		set(answer, "type", protoreflect.EnumNumber(2))
		versions := answer.Mutable(field(answer, "plugin_api_versions")).List()
		versions.Append(protoreflect.ValueOfString("v0.1.0"))
		set(answer, "plugin_version", "v0.0.1")
		set(answer, "name", "go-sh")
	case "ConfigSchema":
	case "SetConfig":
		if len(get(request, "msgpack_config").Bytes()) > 0 {
			return errors.New("configuration not allowed but config passed")
		}
		if driver := get(get(request, "nomad_config").Message(), "driver").Message(); driver.IsValid() {
			logger.Debug("configured", "ports", get(driver, "ClientMaxPort").Uint())
		}
	case "TaskConfigSchema":
		schema(answer)
	case "Capabilities":
		inner := sub(answer, "capabilities")
		set(inner, "send_signals", true)
		set(inner, "exec", true)
	case "StartTask":
		config := get(request, "task").Message()
		if err := d.start(config); err != nil {
			return err
		}
		handle := sub(answer, "handle")
		set(handle, "version", int32(1))
		handle.Set(field(handle, "config"), protoreflect.ValueOfMessage(config))
		set(handle, "state", protoreflect.EnumNumber(1))
		set(handle, "driver_state", []byte(fmt.Sprint("state of ", text(config, "id"))))
	case "RecoverTask":
		handle := get(request, "handle").Message()
		id := text(get(handle, "config").Message(), "id")
		if _, err := d.find(id); err != nil {
			return errors.New("the process that started the task is gone")
		}
		if want := fmt.Sprint("state of ", id); string(get(handle, "driver_state").Bytes()) != want {
			return errors.New("the state came back changed")
		}
	case "WaitTask":
		t, err := d.find(text(request, "task_id"))
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.done:
			result(answer, "result", t.code, t.signal)
		}
	case "StopTask":
		timeout, err := duration(request, "timeout")
		if err != nil {
			return err
		}
		t, err := d.find(text(request, "task_id"))
		if err != nil {
			return nil
		}
		t.kill(signals[text(request, "signal")])
		select {
		case <-t.done:
		case <-time.After(timeout):
			t.kill(syscall.SIGKILL)
			<-t.done
		}
	case "DestroyTask":
		id := text(request, "task_id")
		t, err := d.find(id)
		if err != nil {
			return nil
		}
		if t.running() {
			if !get(request, "force").Bool() {
				return errors.New("cannot destroy running task")
			}
			t.kill(syscall.SIGKILL)
			<-t.done
		}
		d.Lock()
		delete(d.tasks, id)
		d.Unlock()
	case "InspectTask":
		t, err := d.find(text(request, "task_id"))
		if err != nil {
			return err
		}
		inner := sub(answer, "task")
		set(inner, "id", text(t.config, "id"))
		set(inner, "name", text(t.config, "name"))
		stamp(inner, "started_at", t.started)
		if t.running() {
			set(inner, "state", protoreflect.EnumNumber(1))
			stamp(inner, "completed_at", time.Time{})
			result(inner, "result", 0, 0)
		} else {
			set(inner, "state", protoreflect.EnumNumber(2))
			stamp(inner, "completed_at", t.ended)
			result(inner, "result", t.code, t.signal)
		}
	case "SignalTask":
		t, err := d.find(text(request, "task_id"))
		if err != nil {
			return err
		}
		signal, known := signals[text(request, "signal")]
		if !known {
			return fmt.Errorf("unknown signal %q", text(request, "signal"))
		}
		t.kill(signal)
	case "ExecTask":
		timeout, err := duration(request, "timeout")
		if err != nil {
			return err
		}
		if _, err := d.find(text(request, "task_id")); err != nil {
			return err
		}
		words := get(request, "command").List()
		args := make([]string, words.Len())
		for i := range args {
			args[i] = words.Get(i).String()
		}
		bounded, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		cmd := exec.CommandContext(bounded, args[0], args[1:]...)
		var out, problems bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &problems
		if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
			return err
		}
		set(answer, "stdout", out.Bytes())
		set(answer, "stderr", problems.Bytes())
		result(answer, "result", cmd.ProcessState.ExitCode(), 0)
	default:
		return fmt.Errorf("%s is not supported by this driver", method)
	}
	return nil
}

func (d *driver) fingerprint(stream grpc.ServerStream) error {
	for {
		answer := in(drivers, "FingerprintResponse")
		set(answer, "health", protoreflect.EnumNumber(2))
		set(answer, "health_description", "ready")
		attributes := answer.Mutable(field(answer, "attributes")).Map()
		value := attributes.NewValue()
		set(value.Message(), "string_val", "yes")
		attributes.Set(protoreflect.ValueOfString("driver.go-sh").MapKey(), value)
		if err := stream.SendMsg(answer); err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-time.After(30 * time.Second):
		}
	}
}

func (d *driver) stats(stream grpc.ServerStream) error {
	request := in(drivers, "TaskStatsRequest")
	if err := stream.RecvMsg(request); err != nil {
		return err
	}
	interval, err := duration(request, "collection_interval")
	if err != nil {
		return err
	}
	t, err := d.find(text(request, "task_id"))
	if err != nil {
		return err
	}
	for {
		answer := in(drivers, "TaskStatsResponse")
		inner := sub(answer, "stats")
		stamp(inner, "timestamp", time.Now())
		usage := sub(inner, "agg_resource_usage")
		set(sub(usage, "cpu"), "percent", 1.5)
		set(sub(usage, "memory"), "rss", uint64(4096))
		if err := stream.SendMsg(answer); err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-t.done:
			return nil
		case <-time.After(interval):
		}
	}
}

// ExecTaskStreaming without a terminal.
func (d *driver) execStream(stream grpc.ServerStream) error {
	first := in(drivers, "ExecTaskStreamingRequest")
	if err := stream.RecvMsg(first); err != nil {
		return err
	}
	if !first.Has(field(first, "setup")) {
		return errors.New("first message should always be setup")
	}
	setup := get(first, "setup").Message()
	if _, err := d.find(text(setup, "task_id")); err != nil {
		return err
	}
	words := get(setup, "command").List()
	args := make([]string, words.Len())
	for i := range args {
		args[i] = words.Get(i).String()
	}
	cmd := exec.CommandContext(stream.Context(), args[0], args[1:]...)
	stdin, err := cmd.StdinPipe()
	must(err)
	stdout, err := cmd.StdoutPipe()
	must(err)
	stderr, err := cmd.StderrPipe()
	must(err)
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() {
		for {
			next := in(drivers, "ExecTaskStreamingRequest")
			if stream.RecvMsg(next) != nil {
				stdin.Close()
				return
			}
			if !next.Has(field(next, "stdin")) {
				continue
			}
			operation := get(next, "stdin").Message()
			stdin.Write(get(operation, "data").Bytes())
			if get(operation, "close").Bool() {
				stdin.Close()
			}
		}
	}()
	var sending sync.Mutex
	send := func(fill func(answer message)) {
		sending.Lock()
		defer sending.Unlock()
		answer := in(drivers, "ExecTaskStreamingResponse")
		fill(answer)
		_ = stream.SendMsg(answer)
	}
	var copying sync.WaitGroup
	for name, from := range map[protoreflect.Name]io.Reader{"stdout": stdout, "stderr": stderr} {
		copying.Add(1)
		go func() {
			defer copying.Done()
			buffer := make([]byte, 4096)
			for {
				n, err := from.Read(buffer)
				if n > 0 {
					data := append([]byte{}, buffer[:n]...)
					send(func(answer message) { set(sub(answer, name), "data", data) })
				}
				if err != nil {
					send(func(answer message) { set(sub(answer, name), "close", true) })
					return
				}
			}
		}()
	}
	copying.Wait()
	_ = cmd.Wait()
	send(func(answer message) {
		set(answer, "exited", true)
		result(answer, "result", cmd.ProcessState.ExitCode(), 0)
	})
	return nil
}

// go-plugin calls this to register the services with its server.
type servable struct {
	plugin.NetRPCUnsupportedPlugin
	file    func() protoreflect.FileDescriptor
	service protoreflect.Name
	driver  *driver
	skip    map[string]bool
}

func (s *servable) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.New("only a server")
}

func (s *servable) GRPCServer(_ *plugin.GRPCBroker, server *grpc.Server) error {
	service := s.file().Services().ByName(s.service)
	desc := grpc.ServiceDesc{ServiceName: string(service.FullName()), HandlerType: (*any)(nil)}
	streams := map[string]func(grpc.ServerStream) error{
		"Fingerprint":       s.driver.fingerprint,
		"TaskStats":         s.driver.stats,
		"TaskEvents":        func(stream grpc.ServerStream) error { <-stream.Context().Done(); return nil },
		"ExecTaskStreaming": s.driver.execStream,
	}
	for i := range service.Methods().Len() {
		method := service.Methods().Get(i)
		name := string(method.Name())
		if s.skip[name] {
			continue
		}
		if run := streams[name]; run != nil {
			desc.Streams = append(desc.Streams, grpc.StreamDesc{
				StreamName: name, ServerStreams: true, ClientStreams: method.IsStreamingClient(),
				Handler: func(_ any, stream grpc.ServerStream) error { return run(stream) },
			})
			continue
		}
		desc.Methods = append(desc.Methods, grpc.MethodDesc{MethodName: name,
			Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
				request, answer := dynamicpb.NewMessage(method.Input()), dynamicpb.NewMessage(method.Output())
				if err := decode(request); err != nil {
					return nil, err
				}
				// Arrives over GRPCStdio: after the handshake, the library captures standard output.
				s.driver.printed.Do(func() { fmt.Println("printed by the plugin") })
				if err := s.driver.unary(ctx, name, request, answer); err != nil {
					return nil, err
				}
				return answer, nil
			}})
	}
	server.RegisterService(&desc, struct{}{})
	return nil
}

func main() {
	logger = hclog.New(&hclog.LoggerOptions{Level: hclog.Trace, JSONFormat: true, Output: os.Stderr, Name: "go-sh"})
	load()
	if len(os.Args) > 1 && os.Args[1] == "host" {
		host(os.Args[2:])
	}
	d := &driver{tasks: map[string]*task{}}
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig: plugin.HandshakeConfig{ProtocolVersion: 2, MagicCookieKey: "NOMAD_PLUGIN_MAGIC_COOKIE",
			MagicCookieValue: "e4327c2e01eabfd75a8a67adb114fb34a757d57eee7728d857a8cec6e91a7255"},
		Plugins: plugin.PluginSet{
			"base": &servable{file: func() protoreflect.FileDescriptor { return base }, service: "BasePlugin", driver: d},
			// Like drivers older than Nomad 2.0.4, it has neither Init nor Shutdown.
			"driver": &servable{file: func() protoreflect.FileDescriptor { return drivers }, service: "Driver", driver: d,
				skip: map[string]bool{"Init": true, "Shutdown": true}},
		},
		GRPCServer: plugin.DefaultGRPCServer,
		Logger:     logger,
	})
}
