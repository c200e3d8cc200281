package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sort"
	"strings"
	"time"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/volume"
	"github.com/docker/docker/client"
)

// The calls of Portainer's server (its snapshot of an environment, and its dashboard) with Docker's client, as Portainer makes them, and
// the requests that its pages send through its proxy, which strips the version from their paths. It needs each of the former to succeed.
func walkPortainer(api *client.Client, socket string) {
	_, err := api.Ping(ctx)
	need(err)
	info, err := api.Info(ctx)
	need(err)
	show("info", info.Swarm.ControlAvailable, info.Swarm.NodeID != "", info.ID != "", info.Swarm.Cluster != nil,
		info.ServerVersion != "", info.NCPU > 0, info.MemTotal > 0)
	services, err := api.ServiceList(ctx, types.ServiceListOptions{})
	need(err)
	stacks := map[string]bool{}
	for _, each := range services {
		stacks[each.Spec.Labels["com.docker.stack.namespace"]] = true
	}
	show("services", len(services), stacks)
	nodes, err := api.NodeList(ctx, types.NodeListOptions{})
	need(err)
	cpus, memory := int64(0), int64(0)
	for _, each := range nodes {
		cpus += each.Description.Resources.NanoCPUs
		memory += each.Description.Resources.MemoryBytes
	}
	show("nodes", cpus > 0, memory > 0)
	// Those of another walk may still be ending.
	ofStack := func() (found []types.Container) {
		containers, err := api.ContainerList(ctx, container.ListOptions{All: true})
		need(err)
		for _, each := range containers {
			if each.Labels["com.docker.stack.namespace"] == "shop" && each.State == "running" {
				found = append(found, each)
			}
		}
		return
	}
	until("running containers", func() bool { return len(ofStack()) == 2 })
	for _, each := range ofStack() {
		inspected, err := api.ContainerInspect(ctx, each.ID)
		need(err)
		show("container", each.State, strings.HasPrefix(each.Status, "Up "), each.Labels["com.docker.stack.namespace"],
			each.Labels["com.docker.swarm.service.name"], inspected.Config.Env, len(inspected.HostConfig.DeviceRequests))
	}
	_, err = api.ImageList(ctx, image.ListOptions{})
	need(err)
	show("images")
	volumes, err := api.VolumeList(ctx, volume.ListOptions{})
	need(err)
	show("volumes", len(volumes.Volumes))
	networks, err := api.NetworkList(ctx, network.ListOptions{})
	need(err)
	swarmScoped := []string{}
	for _, each := range networks {
		if each.Scope == "swarm" && !strings.HasPrefix(each.Name, "go-") {
			swarmScoped = append(swarmScoped, each.Name)
		}
	}
	sort.Strings(swarmScoped)
	show("networks", swarmScoped)
	version, err := api.ServerVersion(ctx)
	need(err)
	show("version", version.Version != "", version.Os, version.Arch)

	pages := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	request := func(method, path string, body io.Reader) (int, []byte) {
		made, err := http.NewRequestWithContext(ctx, method, "http://docker"+path, body)
		need(err)
		made.Header.Set("Content-Type", "application/json")
		answer, err := pages.Do(made)
		need(err)
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		need(err)
		return answer.StatusCode, text
	}
	running := url.QueryEscape(`{"desired-state":{"running":true}}`)
	dangling := url.QueryEscape(`{"dangling":["true"]}`)
	for _, path := range []string{
		"/info", "/version", "/swarm", "/services", "/tasks", "/tasks?filters=" + running, "/nodes", "/secrets", "/configs",
		"/networks", "/volumes", "/volumes?filters=" + dangling, "/containers/json?all=1", "/containers/json?all=true&size=false",
		"/images/json?all=0", "/images/json?all=true", "/plugins", fmt.Sprintf("/events?since=0&until=%d", time.Now().Unix()),
		"/services/absent", "/nodes/absent", "/containers/absent/json",
	} {
		status, _ := request("GET", path, nil)
		show("GET "+strings.SplitN(path, "?", 2)[0], status)
	}

	until("output in the logs", func() bool {
		_, logs := request("GET", "/services/shop_web/logs?stdout=1&stderr=1&timestamps=0&tail=5&since=0", nil)
		return strings.Contains(string(logs), "begun")
	})
	show("logs")

	// A page shows a service, and its button "Update the service" sends the spec back with a count of forced updates.
	for {
		_, text := request("GET", "/services/shop_web", nil)
		service := struct {
			ID      string
			Version struct{ Index uint64 }
			Spec    map[string]any
		}{}
		need(json.Unmarshal(text, &service))
		service.Spec["TaskTemplate"].(map[string]any)["ForceUpdate"] = 1
		spec, err := json.Marshal(service.Spec)
		need(err)
		path := fmt.Sprintf("/services/%s/update?version=%d", service.ID, service.Version.Index)
		status, answer := request("POST", path, strings.NewReader(string(spec)))
		if strings.Contains(string(answer), "out of sequence") {
			continue
		}
		show("forced update", status)
		break
	}
	status, _ := request("DELETE", "/services/shop_web", nil)
	show("removed", status)
}
