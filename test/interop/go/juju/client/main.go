// Runs Juju's own Go client packages against a server of its protocol: performs users' daily operations one after the other,
// and prints the results as one JSON object. A failed operation has its error as its result.
//
//	juju-client ADDR:PORT CA-FILE MODEL-UUID USER < password
package main

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/juju/juju/api"
	"github.com/juju/juju/api/base"
	"github.com/juju/juju/api/client/action"
	"github.com/juju/juju/api/client/application"
	"github.com/juju/juju/api/client/client"
	"github.com/juju/juju/api/client/modelconfig"
	"github.com/juju/juju/api/client/modelmanager"
	"github.com/juju/juju/api/client/storage"
	"github.com/juju/juju/api/client/usermanager"
	"github.com/juju/juju/api/common"
	"github.com/juju/juju/api/controller/controller"
	"github.com/juju/juju/rpc/params"
	"github.com/juju/loggo"
	"github.com/juju/names/v5"
	"golang.org/x/crypto/nacl/secretbox"
)

const (
	actionWaitMax = 60 * time.Second
	actionPoll    = 200 * time.Millisecond
)

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// runs starts a command on a unit and waits until it ends, like `juju exec`.
func runs(conn api.Connection, unit, commands string) (any, error) {
	actions := action.NewClient(conn)
	begun, err := actions.Run(action.RunParams{Commands: commands, Units: []string{unit}, Timeout: actionWaitMax})
	if err != nil {
		return nil, err
	}
	if len(begun.Actions) != 1 {
		return nil, fmt.Errorf("%d actions", len(begun.Actions))
	}
	if err := begun.Actions[0].Error; err != nil {
		return nil, err
	}
	id := begun.Actions[0].Action.ID
	progress, err := actions.WatchActionProgress(id)
	if err != nil {
		return nil, err
	}
	defer func() {
		progress.Kill()
		_ = progress.Wait()
	}()
	for deadline := time.Now().Add(actionWaitMax); time.Now().Before(deadline); time.Sleep(actionPoll) {
		results, err := actions.Actions([]string{id})
		if err != nil {
			return nil, err
		}
		if status := results[0].Status; status != params.ActionPending && status != params.ActionRunning {
			operation, err := actions.Operation(begun.OperationID)
			return map[string]any{"status": status, "output": results[0].Output, "operation": operation.Status}, err
		}
	}
	return nil, fmt.Errorf("action %s has not ended", id)
}

// adds creates a unit and destroys it at once.
func addsAndDestroys(conn api.Connection, name string) (any, error) {
	applications := application.NewClient(conn)
	units, err := applications.AddUnits(application.AddUnitsParams{ApplicationName: name, NumUnits: 1})
	if err != nil {
		return nil, err
	}
	results, err := applications.DestroyUnits(application.DestroyUnitsParams{Units: units})
	if err != nil {
		return nil, err
	}
	for _, result := range results {
		if result.Error != nil {
			return nil, result.Error
		}
	}
	return units, nil
}

func configures(conn api.Connection) (any, error) {
	config := modelconfig.NewClient(conn)
	if err := config.ModelSet(map[string]any{"logging-config": "<root>=DEBUG"}); err != nil {
		return nil, err
	}
	constraints, err := config.GetModelConstraints()
	if err != nil {
		return nil, err
	}
	all, err := config.ModelGet()
	return map[string]any{"logging-config": all["logging-config"], "constraints": constraints.String()}, err
}

func grants(conn api.Connection) (any, error) {
	users := usermanager.NewClient(conn)
	if _, _, err := users.AddUser("ben", "Ben", "correct horse"); err != nil {
		return nil, err
	}
	if err := controller.NewClient(conn).GrantController("ben", "superuser"); err != nil {
		return nil, err
	}
	info, err := users.UserInfo([]string{"ben"}, usermanager.AllUsers)
	if err != nil {
		return nil, err
	}
	return info[0].Access, nil
}

// register proves its secret key to the server and sets a password, like `juju register`. It returns the HTTP status, and what the
// server's answer proves.
func register(address, user, password string, secretKey []byte) (int, params.SecretKeyLoginResponsePayload, error) {
	var told params.SecretKeyLoginResponsePayload
	var key [32]byte
	var nonce [24]byte
	if copy(key[:], secretKey) != len(key) || len(secretKey) != len(key) {
		return 0, told, fmt.Errorf("a secret key of %d bytes", len(secretKey))
	}
	if _, err := rand.Read(nonce[:]); err != nil {
		return 0, told, err
	}
	payload, err := json.Marshal(params.SecretKeyLoginRequestPayload{Password: password})
	if err != nil {
		return 0, told, err
	}
	body, err := json.Marshal(params.SecretKeyLoginRequest{
		User:              names.NewUserTag(user).String(),
		Nonce:             nonce[:],
		PayloadCiphertext: secretbox.Seal(nil, payload, &nonce, &key),
	})
	if err != nil {
		return 0, told, err
	}
	// A user that registers does not know the root certificate yet.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	answer, err := (&http.Client{Transport: transport}).Post("https://"+address+"/register", "application/json", bytes.NewReader(body))
	if err != nil {
		return 0, told, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return answer.StatusCode, told, nil
	}
	var sealed params.SecretKeyLoginResponse
	if err := json.NewDecoder(answer.Body).Decode(&sealed); err != nil {
		return answer.StatusCode, told, err
	}
	if copy(nonce[:], sealed.Nonce) != len(nonce) {
		return answer.StatusCode, told, fmt.Errorf("a nonce of %d bytes", len(sealed.Nonce))
	}
	opened, ok := secretbox.Open(nil, sealed.PayloadCiphertext, &nonce, &key)
	if !ok {
		return answer.StatusCode, told, fmt.Errorf("the answer does not open")
	}
	return answer.StatusCode, told, json.Unmarshal(opened, &told)
}

// registers creates a user without a password, registers as that user, logs in with the credentials of the answer, resets the
// password and registers again. A key works once.
func registers(conn api.Connection, address string) (any, error) {
	const user, first, second = "cy", "a password of her own", "another of her own"
	users := usermanager.NewClient(conn)
	_, secretKey, err := users.AddUser(user, "Cy", "")
	if err != nil {
		return nil, err
	}
	status, told, err := register(address, user, first, secretKey)
	if err != nil {
		return nil, err
	}
	login := func(password string) (string, error) {
		theirs, err := api.Open(&api.Info{
			Addrs: []string{address}, CACert: told.CACert, Tag: names.NewUserTag(user), Password: password,
		}, api.DefaultDialOpts())
		if err != nil {
			return "", err
		}
		defer theirs.Close()
		return theirs.ControllerTag().Id(), nil
	}
	controllerUUID, err := login(first)
	if err != nil {
		return nil, err
	}
	replayed, _, err := register(address, user, second, secretKey)
	if err != nil {
		return nil, err
	}
	resetKey, err := users.ResetPassword(user)
	if err != nil {
		return nil, err
	}
	_, before := login(first)
	reset, _, err := register(address, user, second, resetKey)
	if err != nil {
		return nil, err
	}
	_, after := login(second)
	return map[string]any{
		"status": status, "sameController": controllerUUID == told.ControllerUUID, "replayed": replayed,
		"oldPassword": before == nil, "reset": reset, "newPassword": after == nil,
	}, nil
}

func logs(conn api.Connection) (any, error) {
	messages, err := client.NewClient(conn, loggo.GetLogger("client")).WatchDebugLog(common.DebugLogParams{
		IncludeEntity: []string{"unit-web-*"}, Replay: true, NoTail: true, Limit: 2,
	})
	if err != nil {
		return nil, err
	}
	told := []map[string]any{}
	for message := range messages {
		told = append(told, map[string]any{"entity": message.Entity, "severity": message.Severity, "module": message.Module,
			"message": message.Message, "hasTime": !message.Timestamp.IsZero()})
	}
	return told, nil
}

func main() {
	if len(os.Args) != 5 {
		fail(fmt.Errorf("usage: juju-client ADDR:PORT CA-FILE MODEL-UUID USER < password"))
	}
	ca, err := os.ReadFile(os.Args[2])
	if err != nil {
		fail(err)
	}
	password, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil {
		fail(err)
	}
	model := names.NewModelTag(os.Args[3])
	conn, err := api.Open(&api.Info{
		Addrs:    []string{os.Args[1]},
		CACert:   string(ca),
		ModelTag: model,
		Tag:      names.NewUserTag(os.Args[4]),
		Password: strings.TrimSpace(password),
	}, api.DefaultDialOpts())
	if err != nil {
		fail(err)
	}
	defer conn.Close()
	told := map[string]any{}
	step := func(name string, run func() (any, error)) {
		result, err := run()
		if err != nil {
			result = map[string]any{"error": err.Error()}
		}
		told[name] = result
	}
	step("status", func() (any, error) {
		status, err := client.NewClient(conn, loggo.GetLogger("client")).Status(nil)
		if err != nil {
			return nil, err
		}
		hardware := []string{}
		for _, machine := range status.Machines {
			hardware = append(hardware, machine.Hardware)
		}
		return hardware, nil
	})
	step("model", func() (any, error) {
		found, err := modelmanager.NewClient(conn).ModelStatus(model)
		if err != nil {
			return nil, err
		}
		return func(status base.ModelStatus) any {
			return map[string]any{"applications": status.ApplicationCount, "machines": status.TotalMachineCount, "error": status.Error}
		}(found[0]), nil
	})
	step("action", func() (any, error) { return runs(conn, "web/0", "echo hello; echo oops >&2; exit 3") })
	step("units", func() (any, error) { return addsAndDestroys(conn, "web") })
	step("config", func() (any, error) { return configures(conn) })
	step("access", func() (any, error) { return grants(conn) })
	step("registration", func() (any, error) { return registers(conn, os.Args[1]) })
	step("logs", func() (any, error) { return logs(conn) })
	step("storage", func() (any, error) { return storage.NewClient(conn).ListStorageDetails() })
	if err := json.NewEncoder(os.Stdout).Encode(told); err != nil {
		fail(err)
	}
}
