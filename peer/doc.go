// Package peer lets the followers of an election ask the leader itself over HTTPS,
// instead of asking the store. While the leader answers, its followers look at the
// store once in two TTLs, and they hear of a resignation at once.
//
// A [Server], or a [Handler] in a server that is there already, answers for the
// elections of this process. A [Client] asks; it is the Peers of
// [leasehold.ElectionOptions]. A candidate needs both, because it may lead and may
// follow:
//
//	client, err := peer.NewClient(&peer.ClientOptions{RootCAs: pool})
//	el, err := leasehold.NewElection(st, "leaders/scheduler", &leasehold.ElectionOptions{
//		LockOptions: leasehold.LockOptions{Address: "10.0.1.42:8443"}, // where the others reach this process
//		Peers:       client,
//	})
//	server, err := peer.NewServer(&peer.ServerOptions{Certificate: cert}, el)
//	err = server.Start(ctx)
//
// A follower keeps one question open. The leader answers it when its leadership
// changes, and after half a TTL at the latest.
//
// For a semaphore, fair lock or reader/writer lock it is the other way round: a process tells those that it has given
// seats, and a holder that it has joined its line, by [Client.Changed]; and their handlers have the semaphores as
// [HandlerOptions.Queues].
//
// An answer makes a follower look at the store later, or sooner. It never extends a
// lease and never ends one: conditional writes to the store alone decide who leads.
// So a fault here costs requests and time, and the guarantee of package leasehold
// stays the same.
package peer
