package ax_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEveryExportedNameIsDocumented: a comment that begins with the name for
// whatever a package exports, any comment for a field or a method of an
// interface.
func TestEveryExportedNameIsDocumented(t *testing.T) {
	for _, file := range libraryFiles(t) {
		fset := token.NewFileSet()
		parsed, err := parser.ParseFile(fset, file, nil, parser.ParseComments|parser.SkipObjectResolution)
		require.NoError(t, err)
		if parsed.Name.Name == "main" {
			continue
		}
		for _, decl := range parsed.Decls {
			for _, missing := range undocumented(decl) {
				t.Errorf("%s: the comment of %s does not begin with its name, or is missing", fset.Position(missing.Pos()), missing.Name)
			}
		}
	}
}

// TestEveryExportedTypeHasAnExample holds for the root package.
func TestEveryExportedTypeHasAnExample(t *testing.T) {
	var examples strings.Builder
	tests, err := filepath.Glob("example*_test.go")
	require.NoError(t, err)
	for _, file := range tests {
		examples.WriteString(readText(t, file))
	}
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, name := range exportedTypes(parsed) {
			found := strings.Contains(examples.String(), "func Example"+name+"(") ||
				strings.Contains(examples.String(), "func Example"+name+"_")
			require.True(t, found, "no Example%s", name)
		}
	}
}

// libraryFiles are the files of all packages that others import.
func libraryFiles(t *testing.T) (files []string) {
	t.Helper()
	skipped := []string{"examples", "bench", "compat", "docs", "testdata", "internal", "cmd", "browsertest"}
	require.NoError(t, filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != "." && (strings.HasPrefix(entry.Name(), ".") || slices.Contains(skipped, entry.Name())):
			return fs.SkipDir
		case strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go"):
			files = append(files, path)
		}
		return nil
	}))
	return files
}

// undocumented are the exported names of one declaration that want a comment.
func undocumented(decl ast.Decl) (names []*ast.Ident) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() && receiverIsExported(d) && !beginsWith(d.Doc, d.Name) {
			names = append(names, d.Name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			names = append(names, undocumentedSpec(d, spec)...)
		}
	}
	return names
}

func undocumentedSpec(d *ast.GenDecl, spec ast.Spec) (names []*ast.Ident) {
	switch s := spec.(type) {
	case *ast.TypeSpec:
		if !s.Name.IsExported() {
			return nil
		}
		if !beginsWith(s.Doc, s.Name) && !beginsWith(d.Doc, s.Name) {
			names = append(names, s.Name)
		}
		return append(names, undocumentedFields(s.Type)...)
	case *ast.ValueSpec:
		for _, name := range s.Names {
			inDocumentedGroup := d.Lparen.IsValid() && d.Doc != nil && s.Comment != nil
			if name.IsExported() && !beginsWith(s.Doc, name) && !beginsWith(d.Doc, name) && !inDocumentedGroup {
				names = append(names, name)
			}
		}
	}
	return names
}

// undocumentedFields are those of a struct or an interface without any comment.
func undocumentedFields(typ ast.Expr) (names []*ast.Ident) {
	var fields *ast.FieldList
	switch t := typ.(type) {
	case *ast.StructType:
		fields = t.Fields
	case *ast.InterfaceType:
		if len(t.Methods.List) == 1 {
			return nil // its type says it all
		}
		fields = t.Methods
	default:
		return nil
	}
	for _, field := range fields.List {
		if field.Doc != nil || field.Comment != nil {
			continue
		}
		for _, name := range field.Names {
			if name.IsExported() {
				names = append(names, name)
			}
		}
	}
	return names
}

// beginsWith tells whether doc begins with the word name.
func beginsWith(doc *ast.CommentGroup, name *ast.Ident) bool {
	if doc == nil {
		return false
	}
	rest, ok := strings.CutPrefix(doc.Text(), name.Name)
	return ok && (rest == "" || !token.IsIdentifier(name.Name+rest[:1]))
}

func receiverIsExported(f *ast.FuncDecl) bool {
	if f.Recv == nil {
		return true
	}
	typ := f.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	if generic, ok := typ.(*ast.IndexExpr); ok {
		typ = generic.X
	}
	name, ok := typ.(*ast.Ident)
	return ok && name.IsExported()
}

func exportedTypes(file *ast.File) (names []string) {
	for _, decl := range file.Decls {
		d, ok := decl.(*ast.GenDecl)
		if !ok || d.Tok != token.TYPE {
			continue
		}
		for _, spec := range d.Specs {
			if name := spec.(*ast.TypeSpec).Name; name.IsExported() {
				names = append(names, name.Name)
			}
		}
	}
	return names
}
