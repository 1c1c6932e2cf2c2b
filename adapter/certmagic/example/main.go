// Command example sees to the certificates of the domains that it is given, once among all machines that run it.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/caddyserver/certmagic"
	leasecertmagic "github.com/leasehold/leasehold/adapter/certmagic"
	"github.com/leasehold/leasehold/store/storeurl"
)

func main() { // s3://my-bucket/certs example.com www.example.com
	st, err := storeurl.Open(context.Background(), os.Args[1])
	if err == nil {
		certmagic.Default.Storage, err = leasecertmagic.New(st, nil)
	}
	if err == nil {
		err = certmagic.ManageSync(context.Background(), os.Args[2:])
	}
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("certificates of", os.Args[2:]) // a server goes on with certmagic.TLS
}
