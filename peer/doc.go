// Package peer lets the followers of an election ask the leader itself over HTTPS, instead of
// the store. While the leader answers, its followers poll the store only once in two TTLs, and
// they learn of a resignation at once.
//
// A [Server], or a [Handler] in your own server, answers for this process's elections. A
// [Client] asks; it is the Peers of [leasehold.ElectionOptions]. A candidate needs both,
// because it may lead or follow:
//
//	client, err := peer.NewClient(&peer.ClientOptions{RootCAs: pool})
//	el, err := leasehold.NewElection(st, "leaders/scheduler", &leasehold.ElectionOptions{
//		LockOptions: leasehold.LockOptions{Address: "10.0.1.42:8443"}, // where the others reach this process
//		Peers:       client,
//	})
//	server, err := peer.NewServer(&peer.ServerOptions{Certificate: cert}, el)
//	err = server.Start(ctx)
//
// A follower keeps one question open. The leader answers it when its leadership changes, and
// after half a TTL at the latest.
//
// For a semaphore, fair lock or reader/writer lock it is the other way round. With
// [Client.Changed], a process notifies the processes that it has given slots, and a holder when
// it joins the queue behind it. Their handlers have the semaphores as [HandlerOptions.Queues].
//
// An answer only makes a follower poll the store later or sooner. It never extends or ends a
// lease: only conditional writes to the store decide who leads. So a fault here costs requests
// and time, but does not weaken the guarantee of package leasehold.
package peer
