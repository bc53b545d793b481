package wiring_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/kvbounce/kvbounce/core/agent"
	"github.com/kvbounce/kvbounce/core/config"
	"github.com/kvbounce/kvbounce/core/session"
	"github.com/kvbounce/kvbounce/core/transport"
	"github.com/kvbounce/kvbounce/ports"
	"github.com/kvbounce/kvbounce/wiring"
)

// The pool: the pages of each layer lie in a row (a plane), and page n of every layer belongs together.
const (
	pageBytes  = 4096
	poolPages  = 64
	poolLayers = 4
)

// windowOf is the same pages in every plane: a run for each plane, and one table for all.
func windowOf(pool ports.Descriptor, pages []uint32) ports.Runs {
	runs := ports.Runs{Index: pages}
	for layer := range uint64(poolLayers) {
		plane := pool.Addr + layer*poolPages*pageBytes
		runs.Runs = append(runs.Runs, ports.Run{Addr: plane, Stride: pageBytes, Piece: pageBytes, Pieces: uint32(len(pages)), Table: 0})
	}
	return runs
}

// descriptorsOf is the same pages as descriptors, which is what a request takes.
func descriptorsOf(pool ports.Descriptor, pages []uint32) (list []ports.Descriptor) {
	for layer := range uint64(poolLayers) {
		for _, page := range pages {
			list = append(list, ports.Descriptor{Addr: pool.Addr + (layer*poolPages+uint64(page))*pageBytes, Bytes: pageBytes, Place: pool.Place})
		}
	}
	return list
}

// retire waits until nothing can touch the memory of an engine request any more.
func retire(ctx context.Context, q *session.Request) (session.Verdict, error) {
	for {
		if v := q.RequireQuiescence(); v != session.Pending {
			return v, nil
		}
		select {
		case <-ctx.Done():
			return session.Pending, ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
}

// Example_receiveWindow moves pages into a receive window, then aborts another request, and frees the pages of both on evidence alone.
func Example_receiveWindow() {
	if err := prefillToDecode(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// bounce: first page there
	// the receiver was told: request 1
	// request 1: prefill released, decode released
	// request 2: prefill released, decode released
}

func prefillToDecode() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	// Both agents are in this process and need no NIXL. Without World, in a process each, they use it.
	cfg := config.Default()
	cfg.Enable, cfg.RequireReceiveToken = true, true
	told := make(chan string, 2)
	p := wiring.Params{Name: "decode", Config: cfg, World: wiring.NewWorld(), BounceRequired: true}
	p.OnNotify = func(_ ports.Identity, message []byte) { told <- string(message) } // in the reactor: it must not block
	decode, err := wiring.New(p)
	if err != nil {
		return err
	}
	defer decode.Close()
	p.Name, p.OnNotify = "prefill", nil
	prefill, err := wiring.New(p)
	if err != nil {
		return err
	}
	defer prefill.Close()

	// Memory outside the Go heap. Only what is received in must be registered.
	source, err := wiring.AllocateHost(poolLayers * poolPages * pageBytes)
	if err != nil {
		return err
	}
	pool, err := wiring.AllocateHost(poolLayers * poolPages * pageBytes)
	if err != nil {
		return err
	}
	registered, err := decode.Register([]ports.Descriptor{pool.Descriptor()}, agent.BounceOnly)
	if err != nil {
		return err
	}

	// The description travels by the engine's own means, once for each process.
	description, err := decode.Describe()
	if err != nil {
		return err
	}
	peer, err := agent.ParseAgentDesc(description.Append(nil))
	if err != nil {
		return err
	}
	if _, err := prefill.AddPeer(peer, false); err != nil {
		return err
	}

	from, to := []uint32{3, 9, 4}, []uint32{50, 2, 17}
	copy(source.Bytes()[3*pageBytes:], "first page there")
	for i, name := range []string{"request 1", "request 2"} {
		// Decode opens a window and gives its token and the addresses to prefill, which writes.
		w, err := decode.OpenReceive(windowOf(pool.Descriptor(), to), nil)
		if err != nil {
			return err
		}
		receiving, err := decode.Session(name)
		if err != nil {
			return err
		}
		receiving.Receive(w)
		h, err := prefill.Submit(agent.Request{
			Peer: peer.Identity, Local: descriptorsOf(source.Descriptor(), from), Remote: descriptorsOf(pool.Descriptor(), to),
			Token: w.Token(), Notify: []byte(name),
		})
		if err != nil {
			return err
		}
		sending, err := prefill.Session(name)
		if err != nil {
			return err
		}
		sending.Send(h)

		if i == 0 {
			if err := h.Wait(ctx); err != nil {
				return err
			}
			fmt.Printf("%v: %s\n", h.Path(), pool.Bytes()[50*pageBytes:][:16])
			select {
			case name := <-told:
				fmt.Println("the receiver was told:", name)
			case <-ctx.Done(): // delivery is not promised: what counts is the sender's Wait
			}
		} else { // an abort, while it runs or after it
			sending.CancelLocal()
			if err := h.Wait(ctx); err != nil && !errors.Is(err, transport.ErrCancelled) {
				return err
			}
		}

		// Each side by itself: the prefill side's source pages, the decode side's pages. The latter closes the window.
		sender, err := retire(ctx, sending)
		if err != nil {
			return err
		}
		receiver, err := retire(ctx, receiving)
		if err != nil {
			return err
		}
		fmt.Printf("%s: prefill %v, decode %v\n", name, sender, receiver)
		// The same asked of a handle and a window alone.
		if err := errors.Join(h.WaitQuiesced(ctx), w.WaitQuiesced(ctx)); err != nil {
			return err
		}
	}

	// Before memory is unmapped.
	if err := registered.Deregister(ctx); err != nil {
		return err
	}
	return errors.Join(pool.Free(), source.Free())
}
