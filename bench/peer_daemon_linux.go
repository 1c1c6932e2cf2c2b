package main

import (
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// tie lets the kernel end the process when the thread is gone that started it, and runs it
// as the account unless that is "".
func tie(cmd *exec.Cmd, account string) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if account == "" {
		return nil
	}
	who, err := user.Lookup(account)
	if err != nil {
		return err
	}
	uid, err := strconv.ParseUint(who.Uid, 10, 32)
	if err != nil {
		return err
	}
	gid, err := strconv.ParseUint(who.Gid, 10, 32)
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return err
}
