//go:build !unix

package main

import "os"

var relayable []os.Signal
