package celldsim_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"celldexport/internal/celldsim"
	"celldexport/internal/objstore"
)

func Example() {
	if err := tour(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// epoch 1, captured [2]
	// epoch 2 on node-b, 1 row of shelf
}

func tour(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "celldsim-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	fleet, err := celldsim.New(ctx, celldsim.Config{
		Bucket: objstore.NewMemory(), Script: "shop", Classes: []string{"Shelf"}, Now: time.Now,
	})
	if err != nil {
		return err
	}
	defer fleet.Close()
	a, err := fleet.Node(ctx, "node-a", dir+"/a")
	if err != nil {
		return err
	}
	b, err := fleet.Node(ctx, "node-b", dir+"/b")
	if err != nil {
		return err
	}
	cell, err := a.Activate(ctx, fleet.CellID("Shelf", "aisle 9"), "aisle 9")
	if err != nil {
		return err
	}
	if err := cell.Exec(`CREATE TABLE shelf(item); INSERT INTO shelf VALUES('nuts')`); err != nil {
		return err
	}
	txids, err := cell.Capture()
	if err != nil {
		return err
	}
	fmt.Printf("epoch %d, captured %d\n", cell.Epoch(), txids)
	if err := a.Handoff(ctx, cell.Scope(), false); err != nil {
		return err
	}
	if cell, err = b.Activate(ctx, cell.Scope(), "aisle 9"); err != nil {
		return err
	}
	dump, err := celldsim.Dump(ctx, cell.DB(), cell.Scope())
	if err != nil {
		return err
	}
	fmt.Printf("epoch %d on %s, %d row of shelf\n", cell.Epoch(), cell.Node().Name(), len(dump["shelf"].Rows))
	return nil
}
