// Command porcupine times Porcupine on histories that bench/checkers.py wrote.
//
// A history is a text file of tab-separated lines. The first names the model and its initial state;
// each other one is an operation: call, return (-1 for an unknown outcome), and what the model's
// reader below says. Reading is not timed. One JSON object a history goes to standard output.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"hash/maphash"
	"math"
	"os"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

type report struct {
	File   string  `json:"file"`
	Result string  `json:"result"`
	Ops    int     `json:"ops"`
	BestMs float64 `json:"best_ms"`
	Runs   int     `json:"runs"`
}

// reader turns the fields after the two times into an input and an output.
type reader func(fields []string, unknown bool) (input, output interface{})

const namesMax = 32

// names gives names numbers, in the order in which they come.
type names struct{ numbers map[string]int }

func (n *names) of(name string) int {
	found, ok := n.numbers[name]
	if !ok {
		if found = len(n.numbers); found == namesMax {
			panic("too many names")
		}
		n.numbers[name] = found
	}
	return found
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return value
}

// --- register: f (r, w, c), a, b, outcome of a compare-and-set (1, 0) ---------------------------

type registerInput struct {
	f       byte
	a, b    int
	outcome bool
	unknown bool
}

func registerModel(initial int) porcupine.Model {
	return porcupine.Model{
		Init: func() interface{} { return initial },
		Step: func(state, input, _ interface{}) (bool, interface{}) {
			in, held := input.(registerInput), state.(int)
			switch in.f {
			case 'r':
				return in.unknown || held == in.a, state
			case 'w':
				return true, in.a
			}
			if in.unknown {
				if held == in.a {
					return true, in.b
				}
				return true, state
			}
			if (held == in.a) != in.outcome {
				return false, state
			}
			if in.outcome {
				return true, in.b
			}
			return true, state
		},
	}
}

func readRegister(fields []string, unknown bool) (interface{}, interface{}) {
	a, b := number(fields[1]), number(fields[2])
	return registerInput{fields[0][0], a, b, fields[3] == "1", unknown}, nil
}

// --- kv: f (get, put, append), key, value, output ----------------------------------------------

type kvInput struct{ f, key, value string }

func kvStep(held string, in kvInput, output interface{}) (bool, string) {
	switch in.f {
	case "get":
		return output == nil || output.(string) == held, held
	case "put":
		return true, in.value
	}
	return true, held + in.value
}

func kvPartitioned() porcupine.Model {
	return porcupine.Model{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			parts := map[string][]porcupine.Operation{}
			for _, op := range history {
				key := op.Input.(kvInput).key
				parts[key] = append(parts[key], op)
			}
			keys := make([]string, 0, len(parts))
			for key := range parts {
				keys = append(keys, key)
			}
			sort.Strings(keys)
			found := make([][]porcupine.Operation, 0, len(keys))
			for _, key := range keys {
				found = append(found, parts[key])
			}
			return found
		},
		Init: func() interface{} { return "" },
		Step: func(state, input, output interface{}) (bool, interface{}) {
			return kvStep(state.(string), input.(kvInput), output)
		},
	}
}

// kvState keeps its hash, so that Porcupine gets one for nothing.
type kvState struct {
	held [namesMax]string
	hash uint64
}

func kvWhole(index *names) porcupine.Model {
	seed := maphash.MakeSeed()
	hash := func(key int, value string) uint64 {
		return maphash.String(seed, value) * uint64(2*key+1)
	}
	return porcupine.Model{
		Init: func() interface{} { return &kvState{} },
		Step: func(state, input, output interface{}) (bool, interface{}) {
			in, held := input.(kvInput), state.(*kvState)
			key := index.of(in.key)
			legal, value := kvStep(held.held[key], in, output)
			if !legal || in.f == "get" {
				return legal, state
			}
			after := *held
			after.hash ^= hash(key, held.held[key]) ^ hash(key, value)
			after.held[key] = value
			return true, &after
		},
		Equal: func(one, other interface{}) bool {
			return *one.(*kvState) == *other.(*kvState)
		},
		Hash: func(state interface{}) uint64 { return state.(*kvState).hash },
	}
}

func readKV(fields []string, unknown bool) (interface{}, interface{}) {
	if unknown || fields[0] != "get" {
		return kvInput{fields[0], fields[1], fields[2]}, nil
	}
	return kvInput{fields[0], fields[1], fields[2]}, fields[3]
}

// --- multi-register: micro-operations f:key:value, key x or y; value * matches anything ----------

type micro struct {
	write, any bool
	key, value int
}

func multiModel() porcupine.Model {
	return porcupine.Model{
		Init: func() interface{} { return [2]int{} },
		Step: func(state, input, _ interface{}) (bool, interface{}) {
			held := state.([2]int)
			for _, m := range input.([]micro) {
				if m.write {
					held[m.key] = m.value
				} else if !m.any && held[m.key] != m.value {
					return false, state
				}
			}
			return true, held
		},
	}
}

func readMulti(fields []string, unknown bool) (interface{}, interface{}) {
	var found []micro
	for _, text := range fields {
		parts := strings.Split(text, ":")
		m := micro{write: parts[0] == "write", key: int(parts[1][0] - 'x')}
		if m.any = parts[2] == "*" || (unknown && !m.write); !m.any {
			m.value = number(parts[2])
		}
		found = append(found, m)
	}
	return found, nil
}

// --- catalog: the columns of the data set -------------------------------------------------------

type entry struct{ id, version, payload int }

// catalogState keeps its hash, too. A version of 0 is absent.
type catalogState struct {
	held [namesMax]entry
	hash uint64
}

func (c *catalogState) set(name int, to entry) {
	c.hash ^= c.held[name].hash(name) ^ to.hash(name)
	c.held[name] = to
}

func (e entry) hash(name int) uint64 {
	if e.version == 0 {
		return 0
	}
	mixed := uint64(name) + 1
	for _, part := range [...]int{e.id, e.version, e.payload} {
		mixed = (mixed ^ uint64(part)) * 0x9E3779B97F4A7C15
		mixed ^= mixed >> 29
	}
	return mixed
}

type catalogInput struct {
	f             byte // c, d, a, r, g, l
	name, name2   int
	payload, id   int
	result        string
	version, seen int
	listing       catalogListing
}

type catalogListing [namesMax]int // ids by name, 0 for absent

type catalogReader struct{ *names }

func (c *catalogReader) read(fields []string, _ bool) (interface{}, interface{}) {
	in := &catalogInput{f: fields[0][0], name: c.of(fields[1]), name2: c.of(fields[2])}
	in.payload, in.result, in.id = number(fields[3]), fields[4], number(fields[5])
	in.version, in.seen = number(fields[6]), number(fields[7])
	for _, pair := range strings.Split(fields[8], ",") {
		if name, id, ok := strings.Cut(pair, ":"); ok {
			in.listing[c.of(name)] = number(id)
		}
	}
	return in, nil
}

// mutate is what the operation does if it takes effect.
func mutate(held *catalogState, in *catalogInput) (after catalogState, done bool) {
	present := held.held[in.name].version != 0
	switch in.f {
	case 'c':
		if present {
			return *held, false
		}
		after = *held
		after.set(in.name, entry{in.id, 1, in.payload})
		return after, true
	case 'd', 'a', 'r':
		if !present || (in.f == 'r' && held.held[in.name2].version != 0) {
			return *held, false
		}
		after = *held
		old := held.held[in.name]
		after.set(in.name, entry{})
		if in.f == 'a' {
			after.set(in.name, entry{old.id, old.version + 1, in.payload})
		} else if in.f == 'r' {
			after.set(in.name2, old)
		}
		return after, true
	}
	panic("not a mutation")
}

func catalogStep(state, input, _ interface{}) (bool, interface{}) {
	held, in := state.(*catalogState), input.(*catalogInput)
	if in.f == 'l' {
		for name := range held.held {
			if held.held[name].id != in.listing[name] {
				return false, state
			}
		}
		return true, state
	}
	old := held.held[in.name]
	switch in.result {
	case "nf":
		return old.version == 0 && in.f != 'c', state
	case "ex":
		taken := old.version != 0
		return taken && (in.f != 'r' || held.held[in.name2].version != 0), state
	}
	if in.f == 'g' {
		return in.result == "?" || old == entry{in.id, in.version, in.seen}, state
	}
	after, done := mutate(held, in)
	if in.result == "?" {
		return true, &after
	}
	if !done || (in.f != 'c' && old.id != in.id) || (in.f == 'a' && old.version+1 != in.version) {
		return false, state
	}
	return true, &after
}

func catalogModel() porcupine.Model {
	return porcupine.Model{
		Init: func() interface{} { return &catalogState{} },
		Step: catalogStep,
		Equal: func(one, other interface{}) bool {
			return *one.(*catalogState) == *other.(*catalogState)
		},
		Hash: func(state interface{}) uint64 { return state.(*catalogState).hash },
	}
}

// --------------------------------------------------------------------------------------------------

func load(path string) (porcupine.Model, []porcupine.Operation, error) {
	file, err := os.Open(path)
	if err != nil {
		return porcupine.Model{}, nil, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<24)
	lines.Scan()
	head := strings.Split(lines.Text(), "\t")
	var model porcupine.Model
	var read reader
	index := &names{map[string]int{}}
	switch head[0] {
	case "register":
		model, read = registerModel(number(head[1])), readRegister
	case "kv":
		model, read = kvWhole(index), readKV
	case "kv-partitioned":
		model, read = kvPartitioned(), readKV
	case "multi-register":
		model, read = multiModel(), readMulti
	case "catalog":
		model, read = catalogModel(), (&catalogReader{index}).read
	default:
		return model, nil, fmt.Errorf("%s: unknown model %q", path, head[0])
	}
	var ops []porcupine.Operation
	for lines.Scan() {
		fields := strings.Split(lines.Text(), "\t")
		call, end := int64(number(fields[0])), int64(number(fields[1]))
		input, output := read(fields[2:], end < 0)
		if end < 0 {
			end = math.MaxInt64
		}
		op := porcupine.Operation{Input: input, Call: call, Output: output, Return: end}
		ops = append(ops, op)
	}
	return model, ops, lines.Err()
}

func main() {
	runs := flag.Int("runs", 5, "runs a history; the best counts")
	limit := flag.Duration("limit", time.Minute, "time limit a run; beyond: unknown")
	enough := flag.Duration("enough", 4*time.Second, "no further runs of a history after this long")
	flag.Parse()
	out := json.NewEncoder(os.Stdout)
	for _, path := range flag.Args() {
		model, ops, err := load(path)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		found := report{File: path, Ops: len(ops), BestMs: math.Inf(1)}
		var spent time.Duration
		for found.Runs < *runs && spent < *enough {
			start := time.Now()
			result := porcupine.CheckOperationsTimeout(model, ops, *limit)
			took := time.Since(start)
			spent += took
			found.Runs++
			found.Result = string(result)
			found.BestMs = min(found.BestMs, float64(took.Nanoseconds())/1e6)
		}
		if err := out.Encode(found); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}
