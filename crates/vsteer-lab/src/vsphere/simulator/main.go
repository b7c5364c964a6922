// govmomi's simulator of vSphere, and govc's object.collect, for vsteer's lab. `serve HOSTS VMS` prints its address and the SHA-256 of its
// certificate and serves until its input ends; lines of its input are what happens meanwhile (hooks.go). Any other words are govc's.
package main

import (
	"bufio"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"log"
	"net/url"
	"os"
	"strconv"

	"github.com/vmware/govmomi/cli"
	_ "github.com/vmware/govmomi/cli/object"
	"github.com/vmware/govmomi/simulator"
)

func serve(hosts, vms int) {
	model := simulator.VPX()
	model.Cluster, model.Host, model.Machine, model.Autostart = 0, hosts, vms, true
	if err := model.Create(); err != nil {
		log.Fatal(err)
	}
	model.Service.Listen = &url.URL{Host: "127.0.0.1:0", User: url.UserPassword("user", "pass")}
	model.Service.TLS = &tls.Config{}
	hooks := hook(model)
	server := model.Service.NewServer()
	print := sha256.Sum256(server.Certificate().Raw)
	fmt.Println(server.URL.Host, hex.EncodeToString(print[:]))
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		fmt.Println(hooks.do(lines.Text()))
	}
}

func main() {
	if len(os.Args) == 4 && os.Args[1] == "serve" {
		hosts, _ := strconv.Atoi(os.Args[2])
		vms, _ := strconv.Atoi(os.Args[3])
		serve(hosts, vms)
		return
	}
	os.Exit(cli.Run(os.Args[1:]))
}
