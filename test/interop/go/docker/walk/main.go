// Walks the calls of Docker's Go client that reach a swarm manager, at one socket, and prints one line of JSON for each result.
// With "volumes" instead of a node's id it walks those about cluster volumes, with "portainer" those that Portainer makes.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/swarm"
	"github.com/docker/docker/client"
	"github.com/docker/docker/errdefs"
	"github.com/docker/docker/pkg/stdcopy"
)

var ctx = context.Background()

func show(name string, values ...any) {
	text, err := json.Marshal(append([]any{name}, values...))
	if err != nil {
		panic(err)
	}
	fmt.Println(string(text))
}

// The kind of an error, as the client derives it from the status, and its words.
func failing(name string, err error) {
	if err == nil {
		show(name, "no error")
		return
	}
	kinds := []string{}
	for kind, is := range map[string]func(error) bool{
		"not found": errdefs.IsNotFound, "conflict": errdefs.IsConflict, "invalid": errdefs.IsInvalidParameter,
		"unavailable": errdefs.IsUnavailable, "system": errdefs.IsSystem,
	} {
		if is(err) {
			kinds = append(kinds, kind)
		}
	}
	sort.Strings(kinds)
	show(name, kinds, err.Error())
}

func need(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func until(what string, condition func() bool) {
	for end := time.Now().Add(90 * time.Second); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if condition() {
			return
		}
	}
	need(fmt.Errorf("no %s within 90 s", what))
}

func main() {
	api, err := client.NewClientWithOpts(client.WithHost("unix://"+os.Args[1]), client.WithAPIVersionNegotiation())
	need(err)
	node := os.Args[2]
	if node == "volumes" {
		walkVolumes(api)
		return
	}
	if node == "portainer" {
		walkPortainer(api, os.Args[1])
		return
	}

	ping, err := api.Ping(ctx)
	need(err)
	show("ping", ping.OSType, ping.Experimental)
	info, err := api.Info(ctx)
	need(err)
	show("info", info.Swarm.LocalNodeState, info.Swarm.ControlAvailable, info.Swarm.Error)

	// The swarm.
	_, err = api.SwarmInit(ctx, swarm.InitRequest{ListenAddr: "127.0.0.1:1"})
	failing("swarm init", err)
	failing("swarm join", api.SwarmJoin(ctx, swarm.JoinRequest{RemoteAddrs: []string{"127.0.0.1:1"}, JoinToken: "x"}))
	inspected, err := api.SwarmInspect(ctx)
	need(err)
	show("swarm", inspected.JoinTokens.Worker != "", inspected.Spec.Orchestration)
	spec := inspected.Spec
	limit := int64(4)
	spec.Orchestration.TaskHistoryRetentionLimit = &limit
	need(api.SwarmUpdate(ctx, inspected.Version, spec, swarm.UpdateFlags{RotateWorkerToken: true}))
	rotated, err := api.SwarmInspect(ctx)
	need(err)
	show("swarm update", rotated.Spec.Orchestration, rotated.JoinTokens.Worker != inspected.JoinTokens.Worker)
	failing("swarm update out of sequence", api.SwarmUpdate(ctx, swarm.Version{Index: 1}, spec, swarm.UpdateFlags{}))
	key, err := api.SwarmGetUnlockKey(ctx)
	need(err)
	show("unlock key", key)

	// Nodes.
	found, raw, err := api.NodeInspectWithRaw(ctx, node)
	need(err)
	show("node", found.Spec.Availability, found.Status.State, len(raw) > 0)
	label := found.Spec
	label.Labels = map[string]string{"go": "yes"}
	need(api.NodeUpdate(ctx, node, found.Version, label))
	nodes, err := api.NodeList(ctx, types.NodeListOptions{Filters: filters.NewArgs(filters.Arg("node.label", "go=yes"))})
	need(err)
	show("nodes", len(nodes), nodes[0].Spec.Labels)
	_, _, err = api.NodeInspectWithRaw(ctx, "absent")
	failing("node absent", err)
	failing("node remove absent", api.NodeRemove(ctx, "absent", types.NodeRemoveOptions{}))

	// Events of everything that follows.
	messages, _ := api.Events(ctx, events.ListOptions{Filters: filters.NewArgs(
		filters.Arg("scope", "swarm"), filters.Arg("type", "secret"), filters.Arg("type", "config"))})
	time.Sleep(500 * time.Millisecond)

	// Secrets and configs.
	named := swarm.Annotations{Name: "go-secret", Labels: map[string]string{"a": "b"}}
	secret, err := api.SecretCreate(ctx, swarm.SecretSpec{Annotations: named, Data: []byte("word")})
	need(err)
	_, err = api.SecretCreate(ctx, swarm.SecretSpec{Annotations: named, Data: []byte("word")})
	failing("secret twice", err)
	secretFound, _, err := api.SecretInspectWithRaw(ctx, secret.ID)
	need(err)
	show("secret", secretFound.Spec)
	secretFound.Spec.Labels = map[string]string{"c": "d"}
	need(api.SecretUpdate(ctx, secret.ID, secretFound.Version, secretFound.Spec))
	secrets, err := api.SecretList(ctx, types.SecretListOptions{Filters: filters.NewArgs(filters.Arg("label", "c=d"))})
	need(err)
	show("secrets", len(secrets), secrets[0].Spec.Name)
	named.Name = "go-config"
	config, err := api.ConfigCreate(ctx, swarm.ConfigSpec{Annotations: named, Data: []byte("text")})
	need(err)
	configFound, _, err := api.ConfigInspectWithRaw(ctx, config.ID)
	need(err)
	show("config", configFound.Spec)
	configFound.Spec.Labels = map[string]string{"c": "d"}
	need(api.ConfigUpdate(ctx, config.ID, configFound.Version, configFound.Spec))
	configs, err := api.ConfigList(ctx, types.ConfigListOptions{Filters: filters.NewArgs(filters.Arg("name", "go-"))})
	need(err)
	show("configs", len(configs), configs[0].Spec.Labels)
	_, _, err = api.ConfigInspectWithRaw(ctx, "absent")
	failing("config absent", err)

	// Networks.
	overlay, err := api.NetworkCreate(ctx, "go-net", network.CreateOptions{
		Driver: "overlay", Attachable: true, Labels: map[string]string{"a": "b"},
		IPAM: &network.IPAM{Config: []network.IPAMConfig{{Subnet: "10.66.0.0/24"}}}})
	need(err)
	_, err = api.NetworkCreate(ctx, "go-net", network.CreateOptions{Driver: "overlay"})
	failing("network twice", err)
	until("allocated network", func() bool {
		each, err := api.NetworkInspect(ctx, overlay.ID, network.InspectOptions{})
		need(err)
		return each.Driver != ""
	})
	networkFound, err := api.NetworkInspect(ctx, overlay.ID, network.InspectOptions{Verbose: true})
	need(err)
	show("network", networkFound.Name, networkFound.Driver, networkFound.Scope, networkFound.Attachable, networkFound.IPAM.Config[0].Subnet)
	networks, err := api.NetworkList(ctx, network.ListOptions{Filters: filters.NewArgs(filters.Arg("name", "go-net"))})
	need(err)
	show("networks", len(networks))
	failing("network absent", api.NetworkRemove(ctx, "absent"))

	// Services.
	replicas := uint64(2)
	wanted := swarm.ServiceSpec{
		Annotations: swarm.Annotations{Name: "go-web", Labels: map[string]string{"s": "l"}},
		TaskTemplate: swarm.TaskSpec{
			ContainerSpec: &swarm.ContainerSpec{
				Image: "bb:1", Command: []string{"sh", "-c", "echo out; echo err >&2; sleep 1000"}, Env: []string{"A=b"},
				Secrets: []*swarm.SecretReference{{SecretID: secret.ID, SecretName: "go-secret",
					File: &swarm.SecretReferenceFileTarget{Name: "word", UID: "0", GID: "0", Mode: 0o444}}},
				Configs: []*swarm.ConfigReference{{ConfigID: config.ID, ConfigName: "go-config",
					File: &swarm.ConfigReferenceFileTarget{Name: "/etc/text", UID: "0", GID: "0", Mode: 0o444}}},
			},
			Placement: &swarm.Placement{Constraints: []string{"node.labels.go==yes"}},
			Networks:  []swarm.NetworkAttachmentConfig{{Target: overlay.ID}},
		},
		Mode:         swarm.ServiceMode{Replicated: &swarm.ReplicatedService{Replicas: &replicas}},
		UpdateConfig: &swarm.UpdateConfig{Parallelism: 1, Order: "start-first"},
		EndpointSpec: &swarm.EndpointSpec{Mode: swarm.ResolutionModeVIP},
	}
	made, err := api.ServiceCreate(ctx, wanted, types.ServiceCreateOptions{})
	need(err)
	_, err = api.ServiceCreate(ctx, wanted, types.ServiceCreateOptions{})
	failing("service twice", err)
	service, _, err := api.ServiceInspectWithRaw(ctx, made.ID, types.ServiceInspectOptions{InsertDefaults: true})
	need(err)
	show("service", service.Spec.Name, service.Spec.Mode, service.Spec.UpdateConfig, service.Spec.TaskTemplate.ContainerSpec.Env)
	tasksOf := func(state swarm.TaskState) []swarm.Task {
		tasks, err := api.TaskList(ctx, types.TaskListOptions{Filters: filters.NewArgs(
			filters.Arg("service", "go-web"), filters.Arg("desired-state", "running"))})
		need(err)
		running := []swarm.Task{}
		for _, task := range tasks {
			if task.Status.State == state {
				running = append(running, task)
			}
		}
		return running
	}
	until("running tasks", func() bool { return len(tasksOf(swarm.TaskStateRunning)) == 2 })
	services, err := api.ServiceList(ctx, types.ServiceListOptions{Status: true, Filters: filters.NewArgs(filters.Arg("name", "go-web"))})
	need(err)
	show("services", len(services), services[0].ServiceStatus)
	task, _, err := api.TaskInspectWithRaw(ctx, tasksOf(swarm.TaskStateRunning)[0].ID)
	need(err)
	show("task", task.ServiceID == made.ID, task.Status.State)
	lines := func(reader io.ReadCloser, err error) []string {
		need(err)
		defer reader.Close()
		var out, wrong strings.Builder
		_, err = stdcopy.StdCopy(&out, &wrong, reader)
		need(err)
		return []string{out.String(), wrong.String()}
	}
	options := container.LogsOptions{ShowStdout: true, ShowStderr: true}
	until("the output", func() bool {
		reader, err := api.ServiceLogs(ctx, made.ID, options)
		return len(lines(reader, err)[1]) == 8
	})
	reader, err := api.ServiceLogs(ctx, made.ID, options)
	show("service logs", lines(reader, err))
	reader, err = api.TaskLogs(ctx, task.ID, options)
	show("task logs", lines(reader, err))
	containers, err := api.ContainerList(ctx, container.ListOptions{Filters: filters.NewArgs(filters.Arg("name", "go-web"))})
	need(err)
	names := []string{}
	for _, each := range containers {
		names = append(names, strings.Join(strings.Split(each.Names[0], ".")[:2], "."))
	}
	sort.Strings(names)
	show("containers", names)

	// A service changes by itself, and then the version that was read is outdated.
	changed := func(change func(*swarm.ServiceSpec), options types.ServiceUpdateOptions) {
		until("update", func() bool {
			now, _, err := api.ServiceInspectWithRaw(ctx, made.ID, types.ServiceInspectOptions{})
			need(err)
			change(&now.Spec)
			_, err = api.ServiceUpdate(ctx, made.ID, now.Version, now.Spec, options)
			if err != nil && strings.Contains(err.Error(), "out of sequence") {
				return false
			}
			need(err)
			return true
		})
	}
	one := uint64(1)
	changed(func(spec *swarm.ServiceSpec) { spec.Mode.Replicated.Replicas = &one }, types.ServiceUpdateOptions{})
	changed(func(spec *swarm.ServiceSpec) { spec.Labels = map[string]string{"s": "m"} }, types.ServiceUpdateOptions{})
	updated, _, err := api.ServiceInspectWithRaw(ctx, made.ID, types.ServiceInspectOptions{})
	need(err)
	show("updated", updated.Spec.Labels, updated.Spec.Mode, updated.PreviousSpec.Labels)
	changed(func(*swarm.ServiceSpec) {}, types.ServiceUpdateOptions{Rollback: "previous"})
	back, _, err := api.ServiceInspectWithRaw(ctx, "go-web", types.ServiceInspectOptions{})
	need(err)
	show("rolled back", back.Spec.Labels)
	_, err = api.ServiceUpdate(ctx, made.ID, swarm.Version{Index: 1}, wanted, types.ServiceUpdateOptions{})
	failing("service update out of sequence", err)
	_, _, err = api.ServiceInspectWithRaw(ctx, "absent", types.ServiceInspectOptions{})
	failing("service absent", err)
	_, _, err = api.TaskInspectWithRaw(ctx, "absent")
	failing("task absent", err)
	_, err = api.ServiceLogs(ctx, "absent", options)
	failing("logs absent", err)
	need(api.ServiceRemove(ctx, made.ID))
	failing("service gone", api.ServiceRemove(ctx, made.ID))
	need(api.SecretRemove(ctx, secret.ID))
	need(api.ConfigRemove(ctx, config.ID))
	until("network to be free", func() bool { return api.NetworkRemove(ctx, overlay.ID) == nil })

	heard := []string{}
	for len(heard) < 6 {
		select {
		case each := <-messages:
			heard = append(heard, fmt.Sprintf("%s %s %s", each.Type, each.Action, each.Actor.Attributes["name"]))
		case <-time.After(20 * time.Second):
			heard = append(heard, "nothing")
		}
	}
	sort.Strings(heard)
	show("events", heard)
}
