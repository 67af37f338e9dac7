// Command cluster runs a Kubernetes API server with an etcd of its own in one process: cluster DIRECTORY FLAG...
// Its state goes into the directory; flags are those of kube-apiserver.
package main

import (
	"net"
	"net/url"
	"os"

	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

// free returns an address of this machine on which nobody listens.
func free() []url.URL {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer listener.Close()
	return []url.URL{{Scheme: "http", Host: listener.Addr().String()}}
}

func main() {
	settings := embed.NewConfig()
	settings.Dir, settings.LogLevel = os.Args[1], "error"
	settings.ListenClientUrls, settings.ListenPeerUrls = free(), free()
	settings.AdvertiseClientUrls, settings.AdvertisePeerUrls = settings.ListenClientUrls, settings.ListenPeerUrls
	settings.InitialCluster = settings.InitialClusterFromName(settings.Name)
	store, err := embed.StartEtcd(settings)
	if err != nil {
		panic(err)
	}
	<-store.Server.ReadyNotify()
	command := app.NewAPIServerCommand()
	command.SetArgs(append(os.Args[2:], "--etcd-servers="+settings.ListenClientUrls[0].String()))
	if command.Execute() != nil {
		os.Exit(1)
	}
}
