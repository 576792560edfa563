package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/urfave/cli/v2"

	"github.com/eks-bootstrap/nodeadm/internal/fault"
	"github.com/eks-bootstrap/nodeadm/nodeadm"
)

func logFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "log-format", Value: "text", Usage: "`FORMAT` of the log on standard error: text or json"},
		&cli.BoolFlag{Name: "v", Usage: "log more"},
	}
}

func newLogger(c *cli.Context) (*logrus.Logger, error) {
	log := logrus.New()
	log.SetOutput(os.Stderr)
	switch format := c.String("log-format"); format {
	case "text":
		log.SetFormatter(plainFormatter{})
	case "json":
		log.SetFormatter(jsonFormatter())
	default:
		return nil, fault.New(fault.Usage, "write --log-format text or --log-format json", "--log-format: %q is not known", format)
	}
	if c.Bool("v") {
		log.SetLevel(logrus.DebugLevel)
	}
	return log, nil
}

// quiet leaves only warnings in the log of a command whose answer is enough.
func quiet(c *cli.Context, options nodeadm.Options) {
	if log, isLogger := options.Log.(*logrus.Logger); isLogger && !c.Bool("v") {
		log.SetLevel(logrus.WarnLevel)
	}
}

func jsonFormatter() logrus.Formatter {
	return &logrus.JSONFormatter{TimestampFormat: time.RFC3339Nano}
}

// plainFormatter writes lines for people: time, level, message. The console
// log of an instance is read long after the fact, so the time is always there.
type plainFormatter struct{}

func (plainFormatter) Format(e *logrus.Entry) ([]byte, error) {
	level := e.Level.String()
	if e.Level == logrus.WarnLevel {
		level = "warn"
	}
	var line bytes.Buffer
	fmt.Fprintf(&line, "%s %-5s %s\n", e.Time.UTC().Format("15:04:05.000"), level, e.Message)
	return line.Bytes(), nil
}

// report prints what went wrong, one failure after the other, each with its
// remedy.
func report(w io.Writer, err error, args []string) {
	if err == nil {
		return
	}
	if slices.Contains(args, "--log-format=json") || strings.Contains(strings.Join(args, " ")+" ", "--log-format json ") {
		log := logrus.New()
		log.SetOutput(w)
		log.SetFormatter(jsonFormatter())
		fault.Each(err, func(e error) {
			log.WithFields(logrus.Fields{"exitCode": int(fault.CodeOf(e)), "remedy": fault.Remedy(e)}).Error(e.Error())
		})
		return
	}
	fault.Each(err, func(e error) {
		fmt.Fprintf(w, "error: %v\n", e)
		if remedy := fault.Remedy(e); remedy != "" {
			fmt.Fprintf(w, "  fix: %s\n", remedy)
		}
	})
}
