// Command clientgo is a leader-election candidate that uses k8s.io/client-go, for the tests and
// benchmarks that compare it with Tenure or let both share a Lease.
//
// GET /leader answers 200 or 503, with the headers of Tenure that the tests' recorder reads. With
// -answer is-leader it reports LeaderElector.IsLeader. With -answer lease it reports whether its
// own lease is valid: for leaseDuration from the renewTime of the last write that the API server
// accepted, by this process's monotonic clock.
//
// The library is used unmodified and without additional checks.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

var (
	api       = flag.String("api", "", "URL of the API server")
	tokenFile = flag.String("token-file", "", "file with the token")
	caFile    = flag.String("ca-file", "", "file with the API server's CA")
	namespace = flag.String("namespace", "default", "namespace of the Lease")
	name      = flag.String("name", "", "name of the Lease")
	identity  = flag.String("identity", "", "who we are")
	listen    = flag.String("listen", "127.0.0.1:0", "where /leader is answered")
	answer    = flag.String("answer", "is-leader", "what /leader says: is-leader or lease")
	lost      = flag.String("lost", "exit", "what follows lost leadership: exit, as in the library's example, or again")
	release   = flag.Bool("release-on-cancel", false, "ReleaseOnCancel")
	lease     = flag.Duration("lease-duration", 15*time.Second, "LeaseDuration")
	deadline  = flag.Duration("renew-deadline", 10*time.Second, "RenewDeadline")
	retry     = flag.Duration("retry-period", 2*time.Second, "RetryPeriod")
)

// recorded wraps the Lease's lock, and records the writes that the API server accepted.
type recorded struct {
	resourcelock.Interface
	mutex sync.Mutex
	until time.Time
	term  int
}

func (it *recorded) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	err := it.Interface.Create(ctx, record)
	it.note(record, err)
	return err
}

func (it *recorded) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity == "" {
		// The lease ends when the release is sent, not when its answer arrives.
		it.note(record, nil)
	}
	err := it.Interface.Update(ctx, record)
	it.note(record, err)
	return err
}

func (it *recorded) note(record resourcelock.LeaderElectionRecord, err error) {
	if err != nil {
		return
	}
	it.mutex.Lock()
	defer it.mutex.Unlock()
	it.until, it.term = time.Time{}, record.LeaderTransitions+1
	if record.HolderIdentity == *identity {
		it.until = record.RenewTime.Add(*lease)
	}
}

func (it *recorded) left() (int, time.Duration) {
	it.mutex.Lock()
	defer it.mutex.Unlock()
	return it.term, max(0, time.Until(it.until))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	flag.Parse()
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host:            *api,
		BearerTokenFile: *tokenFile,
		TLSClientConfig: rest.TLSClientConfig{CAFile: *caFile},
	})
	check(err)
	lock := &recorded{Interface: &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: *namespace, Name: *name},
		Client:     client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: *identity},
	}}
	config := leaderelection.LeaderElectionConfig{
		Lock:            lock,
		LeaseDuration:   *lease,
		RenewDeadline:   *deadline,
		RetryPeriod:     *retry,
		ReleaseOnCancel: *release,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) {},
			OnStoppedLeading: func() {},
		},
	}
	elector, err := leaderelection.NewLeaderElector(config)
	check(err)
	listener, err := net.Listen("tcp", *listen)
	check(err)
	fmt.Printf("{\"listening\":%q}\n", listener.Addr())
	go serve(listener, lock, elector)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	for ctx.Err() == nil {
		elector.Run(ctx)
		if *lost == "exit" && ctx.Err() == nil {
			check(fmt.Errorf("leadership lost"))
		}
	}
}

func serve(listener net.Listener, lock *recorded, elector *leaderelection.LeaderElector) {
	handle := func(to http.ResponseWriter, _ *http.Request) {
		term, left := lock.left()
		says := left > 0
		if *answer == "is-leader" {
			says = elector.IsLeader()
		}
		to.Header().Set("Tenure-Term", strconv.Itoa(term))
		to.Header().Set("Tenure-Valid-For-Ms", strconv.FormatInt(left.Milliseconds(), 10))
		if !says {
			to.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprintln(to, says)
	}
	http.HandleFunc("/leader", handle)
	check(http.Serve(listener, nil))
}
