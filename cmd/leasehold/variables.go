package main

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/sdnotify"
	"github.com/leasehold/leasehold/store/storeurl"
)

// variablePrefix begins the name of every variable of ours.
const variablePrefix = "LEASEHOLD_"

// storeVariable names the store that bare names lie in. It has no flag.
const storeVariable = variablePrefix + "STORE"

// A job is told of the lock around it in these. No flag reads one of them: a leasehold
// within the job is another's, and its defaults are what the user has configured.
const (
	ownLock   = variablePrefix + "LOCK"
	ownToken  = variablePrefix + "TOKEN"
	ownHolder = variablePrefix + "HOLDER"
	ownStore  = variablePrefix + "JOB_STORE"
	ownLayout = variablePrefix + "JOB_LAYOUT"

	ownExpires = variablePrefix + "EXPIRES" // of leasehold acquire --exec, which tells the first three too
)

var told = []string{ownLock, ownToken, ownHolder, ownStore, ownLayout, ownExpires}

// leaseVariable has a lease that was detached, for leasehold renew and release. A job keeps it.
const leaseVariable = variablePrefix + "LEASE"

// variableOf is the name of the variable that a flag can be given by, or "" if there is
// none.
func variableOf(flag string) string {
	switch flag {
	case tokenFlag, "help", "version":
		return ""
	case quorumFlag:
		return storeurl.QuorumFile
	case "holder": // LEASEHOLD_HOLDER tells a job who holds its lock
		return variablePrefix + "HOLDER_NAME"
	}
	return variablePrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// fromEnvironment sets the flags that were not given from their variables.
func fromEnvironment(all *pflag.FlagSet) (err error) {
	all.VisitAll(func(f *pflag.Flag) {
		name := variableOf(f.Name)
		if f.Changed || name == "" || err != nil {
			return
		}
		value := os.Getenv(name)
		if value == "" {
			return
		}
		if e := f.Value.Set(value); e != nil {
			err = badValue(fmt.Sprintf("the variable %s=%q", name, value), f, e)
		}
		f.Changed = true
	})
	return err
}

// environment is the command's: the variables that find the lock and open it again,
// and its holder and token. They replace those of a lock around this one.
func (j *job) environment(lease held) []string {
	// The service manager is told by this process, and the command is not what it watches.
	env := slices.DeleteFunc(sdnotify.Without(os.Environ()), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains(told, name)
	})
	env = append(env, ownLock+"="+j.target.url, ownHolder+"="+lease.Holder(),
		ownStore+"="+j.target.storeURL, ownLayout+"="+string(j.target.layout))
	if lease.Token() != leasehold.NoToken {
		env = append(env, ownToken+"="+lease.Token().String())
	}
	return env
}

// ofKubernetes are the variables that a Service called leasehold, or leasehold-x, brings
// into every container.
var ofKubernetes = onDemand(`^LEASEHOLD_([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// variables are the names of all that are read, in no order, and some of them twice: commands have flags of one name.
func variables(root *cobra.Command) []string {
	names := append([]string{
		storeVariable, leaseVariable,
		variablePrefix + "VERSION", variablePrefix + "HELP", // of flags, which do not read them
		variablePrefix + "ACTIVE_HELP", variablePrefix + "COMPLETION_DESCRIPTIONS", // read by cobra
	}, told...)
	add := func(f *pflag.Flag) {
		if name := variableOf(f.Name); name != "" {
			names = append(names, name)
		}
	}
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(add)
		cmd.PersistentFlags().VisitAll(add)
		for _, c := range cmd.Commands() {
			visit(c)
		}
	}
	visit(root)
	return names
}

// misread says of each variable that looks to be meant for leasehold, and is not read,
// what it may be meant for. Values are not shown: they may be secret.
func misread(environment, known []string) (lines []string) {
	names := map[string]bool{}
	for _, v := range environment {
		name, value, _ := strings.Cut(v, "=")
		if runtime.GOOS == "windows" {
			name = strings.ToUpper(name)
		}
		if value != "" {
			names[name] = true
		}
	}
	for name := range names {
		if name == ownHolder && !names[ownLock] {
			lines = append(lines, "the variable "+ownHolder+" tells a job who holds its lock, and names no holder: did you mean "+variableOf("holder")+"?")
			continue
		}
		ours := strings.HasPrefix(name, variablePrefix)
		if slices.Contains(known, name) || ours && ofKubernetes().MatchString(name) {
			continue
		}
		switch meant := nearest(strings.ToUpper(name), known, 2); {
		case meant != "":
			lines = append(lines, "the variable "+name+" is not one that leasehold reads: did you mean "+meant+"?")
		case ours:
			lines = append(lines, "the variable "+name+" is not one that leasehold reads: see leasehold --help")
		}
	}
	slices.Sort(lines)
	return lines
}
