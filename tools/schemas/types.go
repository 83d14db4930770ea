// Prints the type declarations of Go packages as JSON: struct fields with their types, tags and +markers, named types,
// and string constants by type. Only the standard library's parser is used; nothing of the packages is compiled.
//
//	go run types.go IMPORT/PATH=DIRECTORY ...
package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
)

type field struct {
	Name    string   `json:"name"`
	Type    string   `json:"type"`
	Tag     string   `json:"tag"`
	Markers []string `json:"markers"`
}

type declared struct {
	Type    string   `json:"type"`
	Fields  []field  `json:"fields"`
	Markers []string `json:"markers"`
}

type output struct {
	Types     map[string]declared          `json:"types"`
	Constants map[string]map[string]string `json:"constants"`
}

func main() {
	result := output{Types: map[string]declared{}, Constants: map[string]map[string]string{}}
	for _, argument := range os.Args[1:] {
		path, directory, found := strings.Cut(argument, "=")
		if !found {
			fail(fmt.Errorf("%s: expected IMPORT/PATH=DIRECTORY", argument))
		}
		files, err := filepath.Glob(filepath.Join(directory, "*.go"))
		if err != nil {
			fail(err)
		}
		sort.Strings(files)
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") || strings.HasPrefix(filepath.Base(name), "zz_generated") ||
				strings.HasPrefix(filepath.Base(name), "generated") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
			if err != nil {
				fail(err)
			}
			read(file, path, result)
		}
	}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(result); err != nil {
		fail(err)
	}
}

func read(file *ast.File, path string, result output) {
	imports := map[string]string{}
	for _, spec := range file.Imports {
		full, _ := strconv.Unquote(spec.Path.Value)
		short := full[strings.LastIndex(full, "/")+1:]
		if spec.Name != nil {
			short = spec.Name.Name
		}
		imports[short] = full
	}
	for _, declaration := range file.Decls {
		general, ok := declaration.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range general.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				doc := spec.Doc
				if doc == nil {
					doc = general.Doc
				}
				result.Types[path+"."+spec.Name.Name] = declare(spec, doc, path, imports)
			case *ast.ValueSpec:
				constant(spec, path, imports, result)
			}
		}
	}
}

func declare(spec *ast.TypeSpec, doc *ast.CommentGroup, path string, imports map[string]string) declared {
	structure, ok := spec.Type.(*ast.StructType)
	if !ok {
		return declared{Type: printed(spec.Type, path, imports), Markers: markers(doc)}
	}
	result := declared{Type: "struct", Markers: markers(doc), Fields: []field{}}
	for _, member := range structure.Fields.List {
		tag := ""
		if member.Tag != nil {
			tag, _ = strconv.Unquote(member.Tag.Value)
		}
		name := ""
		if len(member.Names) > 0 {
			name = member.Names[0].Name
		}
		result.Fields = append(result.Fields, field{name, printed(member.Type, path, imports), tag, markers(member.Doc)})
	}
	return result
}

func constant(spec *ast.ValueSpec, path string, imports map[string]string, result output) {
	if spec.Type == nil {
		return
	}
	kind := printed(spec.Type, path, imports)
	for place, name := range spec.Names {
		if place >= len(spec.Values) {
			continue
		}
		if literal, ok := spec.Values[place].(*ast.BasicLit); ok && literal.Kind == token.STRING {
			text, _ := strconv.Unquote(literal.Value)
			if result.Constants[kind] == nil {
				result.Constants[kind] = map[string]string{}
			}
			result.Constants[kind][name.Name] = text
		}
	}
}

func printed(expression ast.Expr, path string, imports map[string]string) string {
	switch node := expression.(type) {
	case *ast.Ident:
		if ast.IsExported(node.Name) {
			return path + "." + node.Name
		}
		return node.Name
	case *ast.SelectorExpr:
		return imports[node.X.(*ast.Ident).Name] + "." + node.Sel.Name
	case *ast.StarExpr:
		return "*" + printed(node.X, path, imports)
	case *ast.ArrayType:
		return "[]" + printed(node.Elt, path, imports)
	case *ast.MapType:
		return "{}" + printed(node.Value, path, imports)
	default:
		return "any"
	}
}

func markers(doc *ast.CommentGroup) []string {
	found := []string{}
	if doc == nil {
		return found
	}
	for _, line := range strings.Split(doc.Text(), "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "+") {
			found = append(found, strings.TrimSpace(line))
		}
	}
	// Directive-like comments are left out of Text.
	for _, comment := range doc.List {
		text := strings.TrimSpace(strings.TrimPrefix(comment.Text, "//"))
		if strings.HasPrefix(text, "+") && !contains(found, text) {
			found = append(found, text)
		}
	}
	return found
}

func contains(list []string, text string) bool {
	for _, one := range list {
		if one == text {
			return true
		}
	}
	return false
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
