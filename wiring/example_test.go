package wiring_test

import (
	"context"
	"fmt"
	"log"

	"github.com/kvbounce/kvbounce/core/agent"
	"github.com/kvbounce/kvbounce/core/config"
	"github.com/kvbounce/kvbounce/ports"
	"github.com/kvbounce/kvbounce/wiring"
)

// Two agents in one process; between processes only the description travels, and World is left out so that NIXL moves the bytes.
func Example() {
	cfg := config.Default()
	cfg.Enable, cfg.MinDescriptorCount = true, 2
	world := wiring.NewWorld()
	prefill, _ := wiring.New(wiring.Params{Name: "prefill", Config: cfg, World: world})
	decode, err := wiring.New(wiring.Params{Name: "decode", Config: cfg, World: world})
	if err != nil {
		log.Fatal(err)
	}
	defer prefill.Close()
	defer decode.Close()

	src, _ := wiring.AllocateHost(1 << 20)
	dst, _ := wiring.AllocateHost(1 << 20)
	copy(src.Bytes()[4096:], "KV cache")
	_, _ = decode.Register([]ports.Descriptor{dst.Descriptor()}, agent.BounceOnly)
	desc, _ := decode.Describe() // desc.Append(nil) are its bytes, agent.ParseAgentDesc reads them
	if _, err := prefill.AddPeer(desc, false); err != nil {
		log.Fatal(err)
	}

	// Page 1 goes to page 7, page 5 to page 2.
	page := func(b *wiring.HostBlock, n uint64) ports.Descriptor {
		return ports.Descriptor{Addr: b.Descriptor().Addr + 4096*n, Bytes: 4096}
	}
	h, err := prefill.Submit(agent.Request{
		Peer:  decode.Identity(),
		Local: []ports.Descriptor{page(src, 1), page(src, 5)}, Remote: []ports.Descriptor{page(dst, 7), page(dst, 2)},
	})
	if err != nil {
		log.Fatal(err)
	}
	<-h.SourceReleased() // the source pages may be reused
	fmt.Println(h.Path(), h.Wait(context.Background()), string(dst.Bytes()[7*4096:][:8]))
	// Output: bounce <nil> KV cache
}
